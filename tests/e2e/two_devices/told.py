"""An estimator for tests that is told what things cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from collage.cost.cost import Cost
from collage.cost.estimator import CostEstimator, Workload
from collage.cost.transition import Pair, Transition


class Told(CostEstimator):
    """So much per operator by backend, and so much for a copy."""

    def __init__(self, copy: float = 1.0, tvm: float = 10.0, second: float = 1.0) -> None:
        self.copy, self.tvm, self.second = copy, tvm, second

    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        assert len({w.backend.device for w in workloads}) <= 1
        return [Cost(getattr(self, w.backend.name) * len(w.operators)) for w in workloads]

    def transitions(self, backends: Sequence[str], threads: int) -> Mapping[Pair, Transition]:
        return {}

    def copies(self, devices: Sequence[str]) -> Mapping[Pair, Transition]:
        return {(a, b): Transition(self.copy) for a in devices for b in devices if a != b}
