"""ActiveEstimator: predict first, and measure only what could still change the plan (RFC 0062, "CostEstimator").

    collage train bench.jsonl.gz -o cost.json
    partition(model, estimator=ActiveEstimator("cost.json"))

`bounds` gives intervals without running anything. A searcher that costs lazily (`searchers.lazy.costing`) then asks
`estimate` for the candidates that matter, and those are measured, unless they are recorded already. Predicted costs,
with the reason "predicted", are returned in two cases: the budget is spent, or the machine prevented a measurement; the
reason then says so. Workloads that the model knows nothing of are measured whatever the budget. If a searcher asks for
everything at once, its first workloads are measured, as far as the budget goes.

What the model knows in float32 only is predicted from that, if it is the pattern of a library in lower precision
(`estimators.float32_twins`).

A model of another machine is wrong by a level, and its intervals are too narrow; so is any model if the network stays
in the caches (`estimators.adaptation`). So it is adapted first, by a few measurements of the network's own workloads,
which count as any other. If its machine is not near (`estimators.cost_model.shipped`), the model errs in more than a
level, and the budget is larger.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property

from collage.cost.cost import Cost
from collage.cost.estimator import CostEstimator, Workload
from collage.cost.transition import Pair, Transition
from collage.measure.protocol import Protocol
from collage.measure.workers import Workers
from collage.progress import Reporter
from collage.records import RecordDatabase
from collage.records.key import Device
from collage.runtime.device_info import DeviceInfo
from estimators.adaptation import LEAST_CALIBRATION, calibration_set, stays_in_caches
from estimators.cached import CachedEstimator
from estimators.cost_model.model import CostModel
from estimators.cost_model.shipped import is_near, related
from estimators.float32_twins import Float32Twins
from estimators.learned import LearnedEstimator, NothingKnown
from estimators.measured import MeasuredEstimator

#: So many times the share, the least and the most may be measured where the model's machine is not near.
FAR = 2
#: Intervals of a model that was adapted hold fewer of the costs than was measured of so few: they are widened by this.
_WIDER = 1.5

_Key = tuple[str, str, tuple[tuple[str, tuple[int, ...]], ...], int, int]


class ActiveEstimator(CostEstimator):
    """Measures, within a budget, what a cost model is not sure enough of. The budget is that of the instance, and what
    is recorded already counts as spent: a second run on the same network measures next to nothing.

    Parameters
    ----------
    model
        A fitted `CostModel`, or the path of a saved one; None is the one that ships with Collage and is nearest.
    records
        A database or the path of one; None is the default one in the user's cache folder.
    protocol
        How to time; None is the default `Protocol()`.
    share
        Of the distinct workloads whose bounds were asked for, how many may be known exactly, be it from records or
        because they are measured now; between 0 and 1. Without effect on a searcher that does not ask for bounds.
    least
        How many that may be whatever the share; a small network is measured entirely.
    most
        How many that may be at most; None for no limit. What the model knows nothing of is measured besides. These
        three count twice where the model is of a machine that is not near.
    measurements
        How many workloads may be measured at most; None for no limit but `share` and `most`.
    seconds
        That measuring may take; looked at between batches. None for no limit.
    widening
        Factor on the intervals' half-widths in the logarithm; at least 0.
    measured
        Asked instead of records and device, when given; everything it is asked for counts as measured.
    device
        The machine (or its fingerprint) to predict for; None is this one.
    reporter
        Shows progress.
    workers
        Who builds and times what is measured; None is processes of this host.

    Attributes
    ----------
    budget_
        What of the budget is used.
    learned_
        Predicts what is not measured; adapted when bounds are first asked for.
    measurer_
        Measures the rest.
    """

    def __init__(
        self,
        model: CostModel | str | os.PathLike[str] | None = None,
        records: RecordDatabase | str | os.PathLike[str] | None = None,
        protocol: Protocol | None = None,
        share: float = 0.2,
        least: int = 0,
        most: int | None = None,
        measurements: int | None = None,
        seconds: float | None = None,
        widening: float = 1.0,
        measured: CostEstimator | None = None,
        device: Device | None = None,
        reporter: Reporter | None = None,
        workers: Workers | None = None,
    ) -> None:
        self.model = model
        self.records = records
        self.protocol: Protocol | None = protocol
        self.share = share
        self.least = least
        self.most = most
        self.measurements = measurements
        self.seconds = seconds
        self.widening = widening
        self.measured = measured
        self.device = device
        self.reporter = reporter
        self.workers = workers

    def bind(self, records: RecordDatabase, reporter: Reporter) -> CostEstimator:
        bound = self.with_params(
            records=records if self.records is None else self.records,
            reporter=self.reporter or reporter,
            measured=self.measured.bind(records, reporter) if self.measured is not None else None,
        )
        bound.budget_ = self.budget_  # which is that of the instance, however many runs it is used in
        return bound

    def on(self, workers: Workers) -> CostEstimator:
        measured = None if self.measured is None else self.measured.on(workers)
        found = self.with_params(workers=workers, measured=measured, device=self.device or workers.device)
        found.budget_ = self.budget_
        return found

    def serves(self, device: DeviceInfo, backends: Collection[str], threads: int) -> bool:
        return self.model is not None or related(device, backends)

    def session(self) -> AbstractContextManager[None]:
        return self.measurer_.session()

    @property
    def uses_device(self) -> bool:
        return self.measured is None or self.measured.uses_device

    def transitions(self, backends: Sequence[str], threads: int) -> Mapping[Pair, Transition] | None:
        return None if self.measured is None else self.measured.transitions(backends, threads)

    def bounds(self, workloads: Sequence[Workload]) -> list[tuple[float, float]]:
        """The interval of each cost; of no width where it is recorded, (0, inf) where the model knows nothing.

        Raises
        ------
        ValueError
            A parameter is out of its range. CollageError: the model cannot be read, or is of another device.
        """
        self._check()
        known, state = self._known(workloads), self.budget_
        state.offered.update(key for key in map(_key, workloads) if key not in known)
        state.recorded.update(key for key in map(_key, workloads) if key in known and key not in state.offered)
        if "learned_" not in vars(self):
            self.learned_ = self._adapted(workloads)
        self._learn_ratios(workloads)
        known = self._known(workloads)
        predicted = iter(self._predicted([w for w in workloads if _key(w) not in known]))
        return [
            _around(known[_key(w)], 0.0) if _key(w) in known else _around(next(predicted), self._widening(w))
            for w in workloads
        ]

    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        """One cost per workload: recorded, measured, or predicted when the budget is spent; raises as `bounds`."""
        self._check()
        state = self.budget_
        costs = self._known(workloads)
        missing = {_key(w): w for w in workloads if _key(w) not in costs}
        limit = self._limit()
        asked = [key for key in missing if key not in state.measures]
        for key, expected in zip(asked, self._predicted([missing[key] for key in asked]), strict=True):
            allowed = self._most() if expected.is_unknown else limit
            spent = sum(state.measures.values()) >= allowed or state.seconds >= self._seconds_limit()
            state.measures[key] = not spent
        chosen = {key: w for key, w in missing.items() if state.measures[key]}
        costs.update(self._measure({key: w for key, w in chosen.items() if key not in state.prevented}))
        rest = {key: w for key, w in missing.items() if key not in costs}
        predicted = zip(rest.items(), self._predicted(list(rest.values())), strict=True)
        costs.update((key, self._explained(key, cost)) for (key, _), cost in predicted)
        return [costs[_key(w)] for w in workloads]

    def _widening(self, workload: Workload) -> float:
        """Of an interval; a ratio to float32 was learned here, and is not widened for another machine's sake."""
        return self.widening * (_WIDER if self.budget_.adapted and not self._twins.knows(workload) else 1.0)

    def _explained(self, key: _Key, predicted: Cost) -> Cost:
        """A prediction with what was in the way of measuring."""
        prevented = self.budget_.prevented.get(key)
        return predicted if prevented is None else replace(predicted, reason=f"{predicted.reason}; {prevented}")

    def notes(self, workloads: Collection[Workload]) -> list[str]:
        """Of the model, for those workloads that had no record when they were asked for, and of what was measured."""
        asked = self.budget_.offered | set(self.budget_.measures)
        adapted = []
        if self.budget_.adapted:
            count = self.learned_.model_.training_["calibration"]["records"]
            adapted = [f"costs are predicted by {self.budget_.adapted}, adapted to this one by {count} measurements"]
        predicted = self.learned_.notes([w for w in workloads if _key(w) in asked])
        reasons = list(dict.fromkeys(self.budget_.prevented.values()))
        prevented = [
            f"{len(self.budget_.prevented)} costs are predicted that could not be measured; of the first: {reason}"
            for reason in reasons[:1]
        ]
        return [*adapted, *predicted, *self._twins.notes(), *prevented, *self.measurer_.notes(workloads)]

    @cached_property
    def budget_(self) -> Budget:
        return Budget()

    @cached_property
    def learned_(self) -> LearnedEstimator:
        return LearnedEstimator(self.model, fallback=NothingKnown(), device=self.device)

    @cached_property
    def _twins(self) -> Float32Twins:
        return Float32Twins(self.learned_.model_)

    @cached_property
    def _looked_up(self) -> dict[_Key, Cost | None]:
        """What the records say; None of what is not in them. Every search asks for all workloads."""
        return {}

    @cached_property
    def _predictions(self) -> dict[_Key, Cost]:
        """What was predicted: every search asks for all workloads."""
        return {}

    def _adapted(self, workloads: Sequence[Workload]) -> LearnedEstimator:
        """What predicts these workloads. Some are measured for it where the model does not fit them."""
        backends = tuple(sorted({workload.backend.name for workload in workloads}))
        learned = LearnedEstimator(self.model, NothingKnown(), self.device, backends)
        fingerprint, described = learned.place_
        foreign = learned.foreign_ is not None
        if not workloads:
            return learned
        if not foreign and (self.protocol is not None or not stays_in_caches(workloads[0], described)):
            return learned
        model, state = learned.model_, self.budget_
        known_threads = model.training_.get("threads", [])
        state.far = foreign and not is_near(model.device_info_, known_threads, described, workloads[0].threads)
        finite = self._measured_first(calibration_set(model, workloads))
        if len(finite) < LEAST_CALIBRATION:  # records may have spent the budget: they will do
            known = self._known(workloads)
            finite = self._measured_first(calibration_set(model, [w for w in workloads if _key(w) in known]))
        if len(finite) < LEAST_CALIBRATION:
            return learned
        adapted = model.adapted(finite, fingerprint, described)
        learned_on = adapted.training_["learned_on"]
        state.adapted = f"the model of another machine ({learned_on})" if foreign else "a model of larger networks"
        return LearnedEstimator(adapted, NothingKnown(), fingerprint)

    def _learn_ratios(self, workloads: Sequence[Workload]) -> None:
        """Measure a few patterns of lower precision, from which the others are predicted."""
        for chosen in self._twins.to_measure(workloads).values():
            self._twins.learn(self._measured_first(chosen))

    def _measured_first(self, workloads: Sequence[Workload]) -> dict[Workload, Cost]:
        """Finite costs of these, measured now as far as the budget goes."""
        state, chosen = self.budget_, {_key(w): w for w in workloads}
        known = self._known(list(chosen.values()))
        room = max(0, int(min(self._limit() - sum(state.measures.values()), len(chosen))))
        missing = dict([(key, w) for key, w in chosen.items() if key not in known][:room])
        state.measures.update(dict.fromkeys(missing, True))
        known.update(self._measure(missing))
        finite = {w: known[key] for key, w in chosen.items() if key in known and known[key].seconds > 0}
        return {w: cost for w, cost in finite.items() if cost.is_finite}

    def _measure(self, chosen: Mapping[_Key, Workload]) -> dict[_Key, Cost]:
        if not chosen:
            return {}
        began = time.monotonic()
        costs = dict(zip(chosen, self.measurer_.estimate(list(chosen.values())), strict=True))
        state = self.budget_
        state.seconds += time.monotonic() - began
        state.prevented.update((key, cost.reason) for key, cost in costs.items() if cost.is_unknown)
        measured = {key: cost for key, cost in costs.items() if not cost.is_unknown}
        state.costs.update(measured)
        return measured

    def _check(self) -> None:
        if not 0.0 <= self.share <= 1.0:
            raise ValueError(f"the share of workloads to be measured is between 0 and 1, not {self.share}")
        if self.widening < 0.0:
            raise ValueError(f"intervals are widened by a factor of at least 0, not {self.widening}")

    def _limit(self) -> float:
        """How many workloads may be measured in all, by what the model knows."""
        recorded, times = len(self.budget_.recorded), FAR if self.budget_.far else 1
        asked = len(self.budget_.offered) + recorded
        share = max(math.floor(times * self.share * asked), times * self.least) if asked else math.inf
        known = min(share, math.inf if self.most is None else times * self.most)
        return min(max(0, known - recorded), self._most())

    def _most(self) -> float:
        """Measurements at most, also of what the model knows nothing of, which no share limits."""
        return math.inf if self.measurements is None else self.measurements

    def _seconds_limit(self) -> float:
        return math.inf if self.seconds is None else self.seconds

    def _known(self, workloads: Sequence[Workload]) -> dict[_Key, Cost]:
        """What is known without measuring anything."""
        measured, asked = self.budget_.costs, {_key(w): w for w in workloads}
        new = {key: w for key, w in asked.items() if key not in measured and key not in self._looked_up}
        if self.measured is None and new:
            place = None if self.workers is None else self.workers.device
            known_before = CachedEstimator(self.records, protocol=self.protocol, device=place)
            recorded = zip(new, known_before.estimate(list(new.values())), strict=True)
            self._looked_up.update((key, None if cost.is_unknown else cost) for key, cost in recorded)
        costs = ((key, measured[key] if key in measured else self._looked_up.get(key)) for key in asked)
        return {key: cost for key, cost in costs if cost is not None}

    @cached_property
    def measurer_(self) -> CostEstimator:
        if self.measured is not None:
            return self.measured
        return MeasuredEstimator(self.records, self.protocol, reporter=self.reporter, workers=self.workers)

    def _predicted(self, workloads: Sequence[Workload]) -> list[Cost]:
        known = self._predictions
        missing = {key: w for w in workloads if (key := _key(w)) not in known or known[key].is_unknown}
        if missing:
            costs = self.learned_.estimate(list(missing.values()))
            twins = self._twins.predict(list(missing.values()))
            self._predictions.update(
                (key, cost if twin.is_unknown else twin) for key, cost, twin in zip(missing, costs, twins, strict=True)
            )
        return [self._predictions[_key(w)] for w in workloads]


@dataclass
class Budget:
    """What of the budget is used.

    Attributes
    ----------
    offered
        Workloads whose bounds were asked for, and that were not recorded.
    recorded
        Those that were.
    measures
        Whether each workload that was asked for is measured; asked again, the answer is the same.
    costs
        What was measured.
    prevented
        What could not be measured, and why: the machine is to blame. It is predicted, too.
    seconds
        That measuring took.
    adapted
        Which model was adapted to this machine and network, in words; "" where none was.
    far
        Whether the model is of a machine that is not near this one.
    """

    offered: set[_Key] = field(default_factory=set)
    recorded: set[_Key] = field(default_factory=set)
    measures: dict[_Key, bool] = field(default_factory=dict)
    costs: dict[_Key, Cost] = field(default_factory=dict)
    prevented: dict[_Key, str] = field(default_factory=dict)
    seconds: float = 0.0
    adapted: str = ""
    far: bool = False


def _key(workload: Workload) -> _Key:
    composites = tuple((label, tuple(positions)) for label, positions in workload.composites)
    return workload.structure, workload.backend.name, composites, workload.threads, workload.working_set


def _around(cost: Cost, widening: float) -> tuple[float, float]:
    """The interval whose geometric middle is the cost and whose width is twice its spread, widened in the logarithm."""
    if not cost.is_finite:
        return 0.0, math.inf
    if cost.seconds <= 0:
        return 0.0, 0.0
    half = widening * math.asinh(cost.spread / cost.seconds)
    return cost.seconds * math.exp(-half), cost.seconds * math.exp(half)
