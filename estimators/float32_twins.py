"""Float32 twins: the latency of a library's patterns in lower precision, predicted from that of the same in float32.

A cost model that knows a library in float32 knows how the latency of its patterns depends on their shapes. The ratio of
lower precision to float32 varies far less than the latencies: on a Xeon with AMX, ResNet-50's patterns took 0.80 of
their latency in float32 with operands in bfloat16, and 0.59 with operands in eight bits, with a standard deviation of
the logarithm of 0.33 and 0.37. So a few of them are measured, and the others are predicted by the ratio.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit  # type: ignore[import-untyped]

from collage import plugins
from collage.backends.base import Backend
from collage.cost.cost import PREDICTED, Cost
from collage.cost.estimator import Workload
from collage.errors import PluginError
from estimators.cost_model.model import CostModel
from estimators.cost_model.names import is_variant, model_name

#: How many patterns of a backend are measured for its ratio; where there are not so many more, all are.
RATIOS = 16


@dataclass(frozen=True)
class _Ratio:
    """Of a backend's latencies to those of its twin: the mean and the half-width of an interval, in the logarithm."""

    mean: float
    half: float


class Float32Twins:
    """Ratios of backends of lower precision to their twins.

    Parameters
    ----------
    model
        Knows the twins.
    """

    def __init__(self, model: CostModel) -> None:
        self._model = model
        self._twins: dict[str, Backend | None] = {}
        self._ratios: dict[str, _Ratio | None] = {}

    def to_measure(self, workloads: Sequence[Workload]) -> dict[str, list[Workload]]:
        """Of each backend that was not asked for before: the patterns that its ratio is to be learned from, evenly
        spaced by the predicted latency of their twins. None where that is most of them.
        """
        found: dict[str, list[Workload]] = {}
        for workload in dict.fromkeys(workloads):
            if workload.backend.name not in self._ratios and self._twin(workload) is not None:
                found.setdefault(workload.backend.name, []).append(workload)
        for name, known in found.items():
            self._ratios[name] = None
            order = np.argsort(self._in_float32(known), kind="stable")
            places = np.linspace(0, len(known) - 1, RATIOS).round().astype(int)
            found[name] = [known[order[place]] for place in places] if len(known) > 2 * RATIOS else []
        return {name: chosen for name, chosen in found.items() if chosen}

    def learn(self, costs: Mapping[Workload, Cost]) -> None:
        """The ratio of one backend, from costs of its patterns; nothing where most of them could not be measured."""
        finite = {w: cost.seconds for w, cost in costs.items() if cost.is_finite and cost.seconds > 0}
        if len(finite) < RATIOS // 2:
            return
        ratios = np.log(list(finite.values())) - np.log(self._in_float32(list(finite)))
        count = len(ratios)
        quantile = stdtrit(count - 1, (1.0 + self._model.coverage) / 2)
        half = float(quantile * ratios.std(ddof=1) * math.sqrt(1.0 + 1.0 / count))
        self._ratios[next(iter(finite)).backend.name] = _Ratio(float(ratios.mean()), half)

    def knows(self, workload: Workload) -> bool:
        """Whether it is predicted by a ratio."""
        return self._ratio(workload) is not None

    def predict(self, workloads: Sequence[Workload]) -> list[Cost]:
        """Costs with half the width of their intervals as their spread; unknown where no ratio is known."""
        costs = [Cost.unknown()] * len(workloads)
        known = [i for i, w in enumerate(workloads) if self.knows(w)]
        for i, seconds in zip(known, self._in_float32([workloads[i] for i in known]), strict=True):
            ratio = self._ratio(workloads[i])
            assert ratio is not None
            middle = float(seconds) * math.exp(ratio.mean)
            costs[i] = Cost(middle, middle * math.sinh(ratio.half), 0, PREDICTED)
        return costs

    def notes(self) -> list[str]:
        """One line for each backend that is predicted so."""
        return [
            f"costs of {name} are predicted from those in float32, by a ratio of {math.exp(ratio.mean):.2f} that "
            f"{RATIOS} measurements show"
            for name, ratio in self._ratios.items()
            if ratio is not None
        ]

    def _ratio(self, workload: Workload) -> _Ratio | None:
        return None if self._twin(workload) is None else self._ratios.get(workload.backend.name)

    def _in_float32(self, workloads: Sequence[Workload]) -> np.ndarray:
        return self._model.predict([twin for w in workloads if (twin := self._twin(w)) is not None])

    def _twin(self, workload: Workload) -> Workload | None:
        """The same in float32; None where the model knows the workload itself, or no twin."""
        backend = workload.backend
        if backend.style != "library" or not backend.is_less_precise or is_variant(model_name(workload)):
            return None
        if backend.name not in self._twins:
            self._twins[backend.name] = self._find(backend)
        twin = self._twins[backend.name]
        return None if twin is None else replace(workload, backend=twin)

    def _find(self, backend: Backend) -> Backend | None:
        name = backend.name.removesuffix(f"-{backend.precision}")
        if name == backend.name or name not in self._model.backends_ or backend.name in self._model.backends_:
            return None
        try:
            found: Backend = plugins.load("backends", name)
        except PluginError:
            return None
        return found
