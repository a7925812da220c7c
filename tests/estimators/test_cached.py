"""CachedEstimator answers what is recorded under the same conditions, and nothing else."""

import inspect
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from collage.backends.base import Availability, Backend
from collage.cost.cost import Cost
from collage.cost.estimator import CostEstimator, Workload, estimates, measured_alike
from collage.errors import RecordsError
from collage.measure.protocol import Protocol, candidate_protocol
from collage.records import Record, RecordDatabase, key_of
from collage.rules.base import PartitionRule
from collage.runtime.device_info import describe_device
from estimators.cached import CachedEstimator

COLD, HOT = candidate_protocol(describe_device()), Protocol(weights="hot")


class PaperBackend(Backend):
    """A backend that exists on paper: a name, a version, a configuration."""

    name = "paper"
    style = "graph"

    def __init__(self, version: str = "1", precision: str = "f32") -> None:
        self._version, self._precision = version, precision

    def availability(self) -> Availability:
        return Availability(True)

    def version(self) -> str:
        return self._version

    def rule(self) -> PartitionRule:
        raise AssertionError("an estimator asks for no rules")

    def configuration(self) -> dict[str, str]:
        return {"precision": self._precision}


class Fallback(CostEstimator):
    """Answers with the length of the structure's name and remembers what it was asked."""

    def __init__(self, protocol: Protocol | None = None) -> None:
        self.protocol = protocol
        self.batches: list[list[str]] = []

    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        self.batches.append([w.structure for w in workloads])
        return [Cost(float(len(w.structure))) for w in workloads]


def never() -> object:
    raise AssertionError("looking a cost up needs neither the module nor its description")


def workload(structure: str = "s", backend: Backend | None = None, threads: int = 2, **more) -> Workload:
    return Workload(backend or PaperBackend(), structure, ("relax.nn.relu",), never, never, threads=threads, **more)


@pytest.fixture
def database(tmp_path: Path):
    with RecordDatabase(tmp_path / "records.db") as opened:
        opened.put(Record.of(key_of(workload("a"), describe_device(), COLD), Cost(1e-3, 1e-5, 31, "converged")))
        opened.put(Record.of(key_of(workload("b"), describe_device(), COLD), Cost.invalid("wrong numbers")))
        yield opened


def test_recorded_costs_come_back_with_all_that_is_known_and_misses_are_unknown(database) -> None:
    a, b, c = CachedEstimator(database, protocol=COLD).estimate([workload("a"), workload("b"), workload("c")])
    assert a == Cost(1e-3, 1e-5, 31, "converged")
    assert b.is_invalid and b.reason == "wrong numbers"
    assert c.is_unknown and c.reason == "no record"


@pytest.mark.parametrize(
    "other",
    [
        workload("a", threads=1),
        workload("a", PaperBackend(version="2")),
        workload("a", PaperBackend(precision="bf16")),
        workload("a", composites=(("dense", (0,)),)),
    ],
)
def test_a_changed_condition_is_a_miss(database, other: Workload) -> None:
    assert CachedEstimator(database, protocol=COLD).estimate([other])[0].is_unknown


def test_another_protocol_or_device_is_a_miss(database) -> None:
    (hot,) = CachedEstimator(database, protocol=HOT).estimate([workload("a")])
    (elsewhere,) = CachedEstimator(database, protocol=COLD, device="another").estimate([workload("a")])
    assert hot.is_unknown and elsewhere.is_unknown


def test_records_of_another_machine_can_be_replayed(database) -> None:
    database.put(Record.of(key_of(workload("a"), "cpu-arm64-8-0", COLD), Cost(7.0)))
    assert CachedEstimator(database, protocol=COLD, device="cpu-arm64-8-0").estimate([workload("a")]) == [Cost(7.0)]


def test_a_path_will_do_and_the_default_protocol_is_the_measured_one(database) -> None:
    for path in (database.path, str(database.path)):
        assert CachedEstimator(path).estimate([workload("a")])[0].seconds == 1e-3


def test_misses_go_to_the_fallback_in_one_batch_and_once_each(database) -> None:
    fallback = Fallback()
    names = ["ccc", "a", "dddd", "ccc", "b", "dddd"]
    costs = CachedEstimator(database, fallback, COLD).estimate([workload(name) for name in names])
    assert fallback.batches == [["ccc", "dddd"]]
    assert [c.seconds for c in costs] == [3.0, 1e-3, 4.0, 3.0, float("inf"), 4.0]


def test_without_misses_the_fallback_is_not_asked(database) -> None:
    fallback = Fallback()
    CachedEstimator(database, fallback, COLD).estimate([workload("a"), workload("b")])
    assert fallback.batches == []


def test_the_fallbacks_protocol_is_the_one_to_look_under(database) -> None:
    assert CachedEstimator(database, Fallback(COLD)).estimate([workload("a")])[0].seconds == 1e-3
    assert CachedEstimator(database, Fallback(HOT)).estimate([workload("a")]) == [Cost(1.0)]
    assert CachedEstimator(database, Fallback(HOT), COLD).estimate([workload("a")])[0].seconds == 1e-3


def test_it_writes_nothing(database) -> None:
    before = list(database)
    CachedEstimator(database, Fallback(), COLD).estimate([workload("new")])
    assert list(database) == before


def test_estimators_compose(database) -> None:
    chain = CachedEstimator(database, CachedEstimator(database, Fallback(), HOT), COLD)
    assert [c.seconds for c in chain.estimate([workload("a"), workload("cc")])] == [1e-3, 2.0]


def test_no_workloads_no_costs(database) -> None:
    assert CachedEstimator(database).estimate([]) == []


def test_the_constructor_only_stores_its_parameters(tmp_path: Path) -> None:
    path = tmp_path / "not" / "yet.db"
    estimator = CachedEstimator(path, device="d")
    assert estimator.get_params() == {"records": path, "fallback": None, "protocol": None, "device": "d"}
    assert list(inspect.signature(CachedEstimator).parameters) == list(estimator.get_params())
    assert "device='d'" in repr(estimator)
    assert not path.parent.exists()


def test_an_unreadable_database_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "records.db").write_text("milk\n" * 500)
    with pytest.raises(RecordsError, match="not a records database"):
        CachedEstimator(tmp_path / "records.db").estimate([workload()])


def test_what_an_older_version_condemned_for_its_machine_is_asked_again(database) -> None:
    full = Cost.invalid("does not compile: No space left on device")
    database.put(Record.of(key_of(workload("full"), describe_device(), COLD), full))
    fallback = Fallback()
    again, wrong = CachedEstimator(database, fallback, COLD).estimate([workload("full"), workload("b")])
    assert again.is_finite and wrong.is_invalid and fallback.batches == [["full"]]
    assert CachedEstimator(database, protocol=COLD).estimate([workload("full")])[0].is_unknown


def test_a_network_that_stays_in_the_caches_has_costs_of_its_own(database) -> None:
    here = replace(describe_device(), cache=32 << 20)
    small, large = (replace(workload("a"), working_set=size << 20) for size in (1, 1024))
    database.put(Record.of(key_of(small, here, candidate_protocol(here, 1 << 20)), Cost(1e-6)))
    cached = CachedEstimator(database, device=here)
    assert cached.estimate([small]) == [Cost(1e-6)]
    assert cached.estimate([large])[0].is_unknown and cached.estimate([workload("a")])[0].is_unknown
    asked = [workload("a"), small, large, replace(workload("b"), working_set=1 << 20)]
    assert [len(group) for group in measured_alike(asked)] == [1, 2, 1]
    assert estimates(cached, asked)[small] == Cost(1e-6)
