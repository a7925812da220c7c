"""The estimators of this repository conform, and estimators that are wrong are found out."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from collage.cost.cost import Cost
from collage.cost.estimator import CostEstimator, Workload
from collage.errors import CodegenError
from collage.measure.protocol import Protocol
from collage.records import Record, RecordDatabase, key_of
from collage.testing import CostEstimatorConformance
from estimators.active import ActiveEstimator
from estimators.cached import CachedEstimator
from estimators.cost_model.model import CostModel
from estimators.cost_model.shipped import shipped
from estimators.learned import LearnedEstimator
from estimators.measured import MeasuredEstimator
from estimators.replay import ReplayEstimator
from tests.collage.testing.running import failure

QUICK = Protocol(weights="hot", warmup=1, min_samples=2, max_samples=2, time_limit_s=0.0)


class Recorded(CostEstimatorConformance):
    """Shares one records database between all tests of a class."""

    records: Path

    @pytest.fixture(autouse=True)
    def _records(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        cls = type(self)
        if "records" not in vars(cls):
            cls.records = tmp_path_factory.mktemp("records") / "records.db"
            self.fill(cls.records)

    def fill(self, path: Path) -> None:
        """Costs of the first workload and of the last; the one between is not known."""
        first, *_, last = self.workloads()
        with RecordDatabase(path) as database:
            database.put(Record.of(key_of(first, "a machine", Protocol()), Cost(1e-3, 1e-5, 9, "converged")))
            database.put(Record.of(key_of(last, "a machine", Protocol()), Cost.invalid("wrong result")))


class TestCached(Recorded):
    def make(self) -> CostEstimator:
        return CachedEstimator(str(self.records), device="a machine")


class TestReplay(Recorded):
    def make(self) -> CostEstimator:
        return ReplayEstimator(str(self.records))


class TestMeasured(Recorded):
    def make(self) -> CostEstimator:
        return MeasuredEstimator(str(self.records), QUICK, build_jobs=2)

    def fill(self, path: Path) -> None:
        """Nothing: the first test measures."""


class ByLength(CostEstimator):
    """Right, but for what subclasses do to it."""

    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        return [Cost(1e-6 * len(w.operators)) for w in workloads]


@cache
def cost_model() -> CostModel:
    return shipped({})


class TestLearned(CostEstimatorConformance):
    """What the model does not know, the fallback is asked for."""

    def make(self) -> CostEstimator:
        return LearnedEstimator(cost_model(), fallback=ByLength(), device=cost_model().device_)


class TestActive(CostEstimatorConformance):
    """Two workloads are measured, and the others predicted."""

    def make(self) -> CostEstimator:
        return ActiveEstimator(cost_model(), measurements=2, measured=ByLength(), device=cost_model().device_)


class Sorts(ByLength):
    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        return sorted(super().estimate(workloads), key=lambda c: c.seconds)


class Unites(ByLength):
    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        return super().estimate(list(dict.fromkeys(workloads)))


class GivesSeconds(ByLength):
    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        return [cost.seconds for cost in super().estimate(workloads)]  # type: ignore[misc]


class FailsOnNothing(ByLength):
    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        assert workloads[0].threads
        return super().estimate(workloads)


class Raises(ByLength):
    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        if any(w.backend.name == "refuses-everything" for w in workloads):
            raise CodegenError("cannot compile")
        return super().estimate(workloads)


class Measures(ByLength):
    """Says that it measured what cannot be."""

    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        return [Cost(c.seconds, 0.0, 5) for c in super().estimate(workloads)]


class GivesNoReason(ByLength):
    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        return [Cost.unknown() for _ in workloads]


class Counts(ByLength):
    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        self.counter: Iterator[int] = getattr(self, "counter", itertools.count())
        return [Cost(float(next(self.counter))) for _ in workloads]


class KeepsALock(ByLength):
    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        self.lock = threading.Lock()
        return super().estimate(workloads)


class ConsumesTheList(ByLength):
    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        costs = super().estimate(workloads)
        if isinstance(workloads, list):
            workloads.sort(key=lambda w: w.structure)
            workloads.pop()
        return costs


class NotesWhatItWasAsked(ByLength):
    def knows(self, backend: str) -> bool:
        self.asked = backend
        return True

    def notes(self, workloads: Collection[Workload]) -> list[str]:
        return [f"asked about {self.asked}"] if hasattr(self, "asked") else []


BROKEN: list[tuple[type[CostEstimator], str]] = [
    (Sorts, "test_costs_are_in_the_workloads_order"),
    (Unites, "test_equal_workloads_have_equal_costs"),
    (GivesSeconds, "test_gives_one_cost_per_workload"),
    (FailsOnNothing, "test_no_workloads_no_costs"),
    (Raises, "test_a_backend_that_refuses_is_a_cost_and_no_exception"),
    (Measures, "test_a_backend_that_refuses_is_a_cost_and_no_exception"),
    (GivesNoReason, "test_what_is_not_known_has_a_reason"),
    (Counts, "test_asked_again_it_gives_the_same_costs"),
    (NotesWhatItWasAsked, "test_asking_what_it_knows_changes_nothing"),
    (KeepsALock, "test_a_pickled_estimator_gives_the_same_costs"),
    (ConsumesTheList, "test_any_sequence_will_do_and_stays_as_it_is"),
]


@pytest.mark.parametrize(("cls", "test"), BROKEN, ids=[cls.__name__ for cls, _ in BROKEN])
def test_an_estimator_that_is_wrong_fails(cls: type[CostEstimator], test: str) -> None:
    assert failure(_suite(cls), test) is not None
    assert failure(_suite(ByLength), test) is None


def _suite(cls: type[CostEstimator]) -> CostEstimatorConformance:
    class Suite(CostEstimatorConformance):
        def make(self) -> CostEstimator:
            return cls()

    return Suite()
