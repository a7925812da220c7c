"""LearnedEstimator: costs predicted from descriptions; nothing is built or run (RFC 0062, "CostEstimator").

    partition(model, estimator="learned")                              # by the model that ships with Collage
    collage train bench.jsonl.gz -o cost.json
    partition(model, estimator=LearnedEstimator("cost.json"))          # by one of this machine

The models that ship are of a few machines (`estimators.cost_model.shipped`). On another one the nearest still shows
which backend is likely to win, and a note names its machine; `collage train LOGS --calibrate` adapts it in a
minute.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

from collage.cost.cost import PREDICTED, Cost
from collage.cost.estimator import Configurations, CostEstimator, Trainable, Workload
from collage.errors import CollageError
from collage.measure.workers import Workers
from collage.progress import Reporter
from collage.records import Record, RecordDatabase
from collage.records.key import Device
from collage.runtime.device_info import DeviceInfo, describe_device
from estimators.cost_model.model import CostModel
from estimators.cost_model.names import model_name
from estimators.cost_model.shipped import nearest, shipped


class NothingKnown(CostEstimator):
    """Every cost is Unknown: of what no model has learned from."""

    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        return [Cost.unknown(f"{PREDICTED}: nothing, of backend {model_name(w)}") for w in workloads]


class LearnedEstimator(Trainable):
    """Predicts what a workload would take.

    Parameters
    ----------
    model
        A fitted `CostModel`, or the path of a saved one, of this machine; None is the one that ships with Collage for
        this machine, or for the one that is most like it.
    fallback
        Asked for the workloads of backends that the model knows nothing of, and for those with products in eight bits
        where it has not learned from such; None makes the former an error, and the latter Unknown.
    device
        The machine (or its fingerprint) to predict for; None is this one.
    backends
        That a model which ships has to know to be chosen, where there is one that knows them all.

    Attributes
    ----------
    model_
        The model that predicts, read when it is first needed.
    foreign_
        The machine to predict for, where the model is of another one.
    """

    def __init__(
        self,
        model: CostModel | str | os.PathLike[str] | None = None,
        fallback: CostEstimator | None = None,
        device: Device | None = None,
        backends: Collection[str] = (),
    ) -> None:
        self.model = model
        self.fallback = fallback
        self.device = device
        self.backends = backends

    def serves(self, device: DeviceInfo, backends: Collection[str], threads: int) -> bool:
        # Of the model's backends only: those that it does not know are left out, with a note.
        return self.model is not None or nearest(device, (), threads) is not None

    def bind(self, records: RecordDatabase, reporter: Reporter) -> CostEstimator:
        return self if self.fallback is None else self.with_params(fallback=self.fallback.bind(records, reporter))

    def on(self, workers: Workers) -> CostEstimator:
        fallback = None if self.fallback is None else self.fallback.on(workers)
        return self.with_params(fallback=fallback, device=self.device or workers.device)

    def session(self) -> AbstractContextManager[None]:
        return nullcontext() if self.fallback is None else self.fallback.session()

    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        """One predicted cost per workload; its spread is half the width of the prediction interval.

        Raises
        ------
        CollageError
            The model cannot be read, or is of another device or set of backends.
        """
        model = self.model_
        if self.foreign_ is not None and self.model is not None:
            raise CollageError(
                f"the cost model is of device {model.device_} and this is {self.foreign_[0]}: train one on records of "
                "this machine, or adapt it to a few of them (`collage train LOGS -o cost.json --calibrate MODEL`)"
            )
        # Of a backend that nobody knows there is no plan; of one that is known in float32, what to measure.
        known = [
            i
            for i, w in enumerate(workloads)
            if model_name(w) in model.backends_ or (self.fallback is None and w.backend.name not in model.backends_)
        ]
        costs: dict[int, Cost] = {}
        asked = [workloads[i] for i in known]
        if asked:
            lows, highs = model.predict_interval(asked)
            for i, low, high in zip(known, lows, highs, strict=True):
                # The interval is symmetric in the logarithm: its geometric middle is the prediction.
                costs[i] = Cost(float((low * high) ** 0.5), float(high - low) / 2, 0, PREDICTED)
        rest = [i for i in range(len(workloads)) if i not in costs]
        if rest:
            fallback = self.fallback or NothingKnown()
            costs.update(zip(rest, fallback.estimate([workloads[i] for i in rest]), strict=True))
        return [costs[i] for i in range(len(workloads))]

    @classmethod
    def train(
        cls,
        records: Iterable[Record],
        designed: Iterable[Record] = (),
        *,
        seed: int = 0,
        configurations: Configurations = "newest",
        **parameters: Any,
    ) -> CostModel:
        """A fitted model; further `parameters` are those of `CostModel`."""
        ours, others = list(records), list(designed)
        marks = [False] * len(ours) + [True] * len(others)
        model = CostModel(seed=seed, configurations=configurations, **parameters)
        return model.fit([*ours, *others], designed=marks)

    @classmethod
    def calibrate(cls, records: Iterable[Record], model: str | os.PathLike[str] | None = None) -> CostModel:
        """A saved model (None: the one that ships for a machine like that of the records), adapted to records."""
        given = list(records)
        if model is not None:
            return CostModel.load(model).calibrated(given)
        device = next((record.device for record in given if record.device), {})
        return shipped(device).calibrated(given)

    def knows(self, backend: str) -> bool:
        """Whether the model, or the fallback, has costs of a backend; raises as `estimate` without a model."""
        return self.fallback is not None or backend in self.model_.backends_

    def notes(self, workloads: Collection[Workload]) -> list[str]:
        """Where the model comes from, if not from here, and how many of its predictions are guesses."""
        predicted = [w for w in workloads if model_name(w) in self.model_.backends_] if workloads else []
        if not predicted:
            return []
        model, count, notes = self.model_, len(predicted), []
        if self.foreign_ is not None:
            machine = model.device_info_.get("model") or model.device_
            notes.append(
                f"costs are predicted by the model that ships with Collage, of another machine ({machine}): "
                "measure a few records here and adapt it with `collage train LOGS -o cost.json --calibrate`"
            )
        facts = model.training_.get("calibration") or model.training_
        threads = sorted({workload.threads for workload in predicted} - set(facts.get("threads", [])))
        if threads:
            known = ", ".join(map(str, facts.get("threads", [])))
            notes.append(f"costs are predicted for {threads[0]} threads by a model of {known}")
        if far := int(model.far(predicted).sum()):
            notes.append(f"{far} of {count} predictions are of sizes or kinds that the cost model has not seen")
        return notes

    @cached_property
    def model_(self) -> CostModel:
        if isinstance(self.model, CostModel):
            return self.model
        return shipped(self.place_[1], self.backends) if self.model is None else CostModel.load(self.model)

    @cached_property
    def foreign_(self) -> tuple[str, Mapping[str, Any]] | None:
        """Fingerprint and description of the machine to predict for, where the model is of another one."""
        fingerprint, device = self.place_
        return None if fingerprint == self.model_.device_ else (fingerprint, device)

    @property
    def place_(self) -> tuple[str, Mapping[str, Any]]:
        """Fingerprint and description of the machine to predict for."""
        device = describe_device() if self.device is None else self.device
        described = device.as_dict() if isinstance(device, DeviceInfo) else {"fingerprint": device}
        return str(described["fingerprint"]), described
