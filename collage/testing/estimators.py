"""CostEstimatorConformance: the conditions that every cost estimator meets (`collage.cost.estimator.CostEstimator`)."""

from __future__ import annotations

import pickle
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from collage.backends.base import Availability, Backend, Style
from collage.backends.tvm.backend import TVMBackend
from collage.cost.cost import Cost
from collage.cost.estimator import CostEstimator, Workload
from collage.errors import CodegenError
from collage.rules.base import PartitionRule
from collage.testing import networks
from collage.testing.parameters import ParameterisedConformance


class CostEstimatorConformance(ParameterisedConformance):
    """Inherit, and define `make`; an estimator that knows certain workloads only names them in `workloads`."""

    @abstractmethod
    def make(self) -> CostEstimator:
        """A new estimator; all that a test makes are equal, and may share their records."""

    def workloads(self) -> list[Workload]:
        """At least two different workloads; best of different costs."""
        modules = (networks.look_up(), networks.attention(), networks.branches(), networks.convolutions())
        return [Workload.of_module(module, TVMBackend()) for module in modules]

    def test_gives_one_cost_per_workload(self) -> None:
        workloads = self.workloads()
        assert len(workloads) >= 2
        costs = self.make().estimate(workloads)
        assert len(costs) == len(workloads) and all(isinstance(cost, Cost) for cost in costs)

    def test_costs_are_in_the_workloads_order(self) -> None:
        workloads, estimator = self.workloads(), self.make()
        costs = list(map(comparable, estimator.estimate(workloads)))
        assert list(map(comparable, estimator.estimate(workloads[::-1]))) == costs[::-1]
        assert [comparable(estimator.estimate([workload])[0]) for workload in workloads] == costs

    def test_equal_workloads_have_equal_costs(self) -> None:
        first, second, *_ = self.workloads()
        a, b, c, d = self.make().estimate([first, second, first, second])
        assert comparable(a) == comparable(c) and comparable(b) == comparable(d)

    def test_no_workloads_no_costs(self) -> None:
        assert list(self.make().estimate([])) == []

    def test_any_sequence_will_do_and_stays_as_it_is(self) -> None:
        workloads = self.workloads()
        asked = list(workloads)
        estimator = self.make()
        costs = list(map(comparable, estimator.estimate(asked)))
        assert asked == workloads
        assert list(map(comparable, estimator.estimate(tuple(asked)))) == costs

    def test_a_backend_that_refuses_is_a_cost_and_no_exception(self) -> None:
        """Invalid from an estimator that tries; Unknown, or a guess, from one that does not; the others' costs stay."""
        known = self.workloads()[0]
        refused = Workload.of_module(networks.convolutions(), RefusesEverything())
        cost, other = self.make().estimate([refused, known])
        assert cost.is_invalid or cost.is_unknown or cost.samples == 0, "it cannot have been measured"
        assert comparable(other) == comparable(self.make().estimate([known])[0])

    def test_what_is_not_known_has_a_reason(self) -> None:
        refused = Workload.of_module(networks.convolutions(), RefusesEverything())
        for cost in self.make().estimate([*self.workloads(), refused]):
            assert cost.is_finite or cost.reason

    def test_asked_again_it_gives_the_same_costs(self) -> None:
        workloads, estimator = self.workloads(), self.make()
        costs = list(map(comparable, estimator.estimate(workloads)))
        assert list(map(comparable, estimator.estimate(workloads))) == costs

    def test_asking_what_it_knows_changes_nothing(self) -> None:
        workloads, estimator = self.workloads(), self.make()
        estimator.estimate(workloads)
        notes = estimator.notes(workloads)
        assert all(isinstance(note, str) and note for note in notes)
        estimator.knows(RefusesEverything.name)
        assert estimator.notes(workloads) == notes

    def test_a_pickled_estimator_gives_the_same_costs(self) -> None:
        """Before its first use, and after."""
        workloads, estimator = self.workloads(), self.make()
        before = pickle.loads(pickle.dumps(estimator))
        costs = list(map(comparable, estimator.estimate(workloads)))
        after = pickle.loads(pickle.dumps(estimator))
        for copy in (before, after):
            assert list(map(comparable, copy.estimate(workloads))) == costs


class RefusesEverything(Backend):
    """A graph-style backend that can compile nothing."""

    name: ClassVar[str] = "refuses-everything"
    style: ClassVar[Style] = "graph"

    def availability(self) -> Availability:
        return Availability(True)

    def version(self) -> str:
        return "1"

    def rule(self) -> PartitionRule:
        raise AssertionError("an estimator asks for no rules")

    def codegen(self, functions: Sequence[Any], options: dict[str, Any]) -> list[Any]:
        raise CodegenError(f"{self.name} compiles nothing")

    def engine_blob(self, function: Any) -> bytes:
        raise CodegenError(f"{self.name} compiles nothing")


def comparable(cost: Cost) -> tuple[str, float, float, int, str]:
    """A cost as something to compare: an Unknown one does not equal itself."""
    known = cost.seconds if cost.is_finite else -1.0
    return (str(cost) if not cost.is_finite else "", known, cost.spread, cost.samples, cost.reason)
