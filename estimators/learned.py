"""LearnedEstimator: costs predicted from descriptions; nothing is built or run (RFC 0062, "CostEstimator").

collage train bench.jsonl.gz -o cost.json
partition(model, estimator=LearnedEstimator("cost.json"))
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from collage.cost import Cost
from collage.device import describe
from collage.errors import CollageError, PluginError
from collage.estimate import CostEstimator, Workload
from collage.records import Record
from collage.records.key import Device
from estimators.cost_model import CostModel


class LearnedEstimator(CostEstimator):
    """Predicts what a workload would take.

    Parameters
    ----------
    model: a fitted `CostModel`, or the path of a saved one.
    fallback: asked for the workloads of backends that the model knows nothing of; None makes those an error.
    device: the machine (or its fingerprint) to predict for; None is this one.
    """

    def __init__(
        self,
        model: CostModel | str | os.PathLike[str] | None = None,
        fallback: CostEstimator | None = None,
        device: Device | None = None,
    ) -> None:
        self.model = model
        self.fallback = fallback
        self.device = device

    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        """One predicted cost per workload; its spread is half the width of the prediction interval.

        Raises
        ------
        PluginError: there is no model. CollageError: it cannot be read, or is of another device or set of backends.
        """
        model = self._loaded()
        device = self._fingerprint()
        if device != model.device_:
            raise CollageError(
                f"the cost model is of device {model.device_} and this is {device}: "
                "train one on records of this machine"
            )
        known = [i for i, w in enumerate(workloads) if w.backend.name in model.backends_ or self.fallback is None]
        costs: dict[int, Cost] = {}
        asked = [workloads[i] for i in known]
        if asked:
            lows, highs = model.predict_interval(asked)
            for i, low, high in zip(known, lows, highs, strict=True):
                # The interval is symmetric in the logarithm: its geometric middle is the prediction.
                costs[i] = Cost(float((low * high) ** 0.5), float(high - low) / 2, 0, "predicted")
        rest = [i for i in range(len(workloads)) if i not in costs]
        if rest and self.fallback is not None:
            costs.update(zip(rest, self.fallback.estimate([workloads[i] for i in rest]), strict=True))
        return [costs[i] for i in range(len(workloads))]

    @classmethod
    def train(cls, records: Iterable[Record], **parameters: Any) -> CostModel:
        """The hook of `collage train`: a fitted model, with `save(path)` and `errors()` as an `ErrorReport`."""
        from estimators.cost_model_errors import ReportingCostModel

        return ReportingCostModel(**parameters).fit(records)

    def _loaded(self) -> CostModel:
        if self.model is None:
            raise PluginError(
                "the estimator 'learned' has no cost model: `collage train LOGS -o cost.json` makes one from benchmark "
                "logs, and LearnedEstimator('cost.json') predicts with it"
            )
        if isinstance(self.model, CostModel):
            return self.model
        if not hasattr(self, "_read"):
            self._read = CostModel.load(self.model)
        return self._read

    def _fingerprint(self) -> str:
        device = describe() if self.device is None else self.device
        return device if isinstance(device, str) else device.fingerprint
