"""ReplayEstimator serves what was recorded, wherever it was, and never mixes what cannot be added."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collage.backends.base import Availability, Backend
from collage.backends.onnx.onnxruntime import ONNXRuntimeBackend
from collage.backends.onnx.openvino import OpenVINOBackend
from collage.cost.cost import Cost
from collage.cost.estimator import Workload
from collage.errors import RecordsError
from collage.graph.from_relax import read_graph
from collage.measure.protocol import Protocol
from collage.measure.workloads import WorkloadFactory
from collage.records import Record, RecordDatabase, RecordKey, export_log
from collage.records.key import protocol_json
from collage.rules.base import PartitionRule, PartitionSpec
from collage.rules.gather import gather_candidates
from collage.search import CostTable, SearchProblem
from collage.testing.networks import convolutions
from estimators.replay import ReplayEstimator
from searchers.dijkstra import DijkstraSearcher

COLD, HOT = Protocol(weights="cold"), Protocol(weights="hot")


class GoneBackend(Backend):
    """A backend whose library is not on this machine: only its name is known."""

    name = "gone"
    style = "graph"

    def availability(self) -> Availability:
        return Availability(False, "not on this machine")

    def version(self) -> str:
        raise AssertionError("only called when available")

    def configuration(self) -> dict[str, Any]:
        raise AssertionError("replaying asks for no configuration")

    def rule(self) -> PartitionRule:
        raise AssertionError("an estimator asks for no rules")


def never() -> object:
    raise AssertionError("looking a cost up needs neither the module nor its description")


def workload(structure: str = "s", threads: int = 2, composites: Any = ()) -> Workload:
    return Workload(GoneBackend(), structure, ("relax.nn.relu",), never, never, composites, threads)


def record(structure: str, seconds: float | None, day: int = 1, **key: Any) -> Record:
    """Measured on some day of January, on another machine, with versions of its own."""
    fields: dict[str, Any] = {
        **{"kind": "candidate", "structure": structure, "backend": "gone", "backend_version": "1.0"},
        **{"configuration": "c", "composites": (), "device": "cpu-a", "threads": 2, "tvm_version": "0.1"},
        **{"protocol": protocol_json(COLD), **key},
    }
    stamp = f"2026-01-{day:02}T00:00:00.000000+00:00"
    status = "invalid" if seconds is None else "ok"
    return Record(RecordKey(**fields), status, seconds, reason="killed" if seconds is None else "", timestamp=stamp)


def log(tmp_path: Path, *records: Record, name: str = "log.jsonl") -> Path:
    with RecordDatabase(tmp_path / f"{name}.db") as database:
        database.put_many(records)
        export_log(database, tmp_path / name)
    return tmp_path / name


def test_another_machines_costs_are_served_without_asking_for_anything_of_this_one(tmp_path: Path) -> None:
    source = log(tmp_path, record("a", 1e-3), record("b", None))
    a, b, c, again = ReplayEstimator(source).estimate([workload("a"), workload("b"), workload("c"), workload("a")])
    assert a == again == Cost(1e-3)
    assert b.is_invalid and b.reason == "killed"
    assert c.is_unknown and c.reason == "no record of this structure on gone"


@pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.gz", "log.jsonl.db"])
def test_logs_compressed_logs_and_databases_will_do(tmp_path: Path, name: str) -> None:
    log(tmp_path, record("a", 1e-3), name="log.jsonl")
    log(tmp_path, record("a", 1e-3), name="log.jsonl.gz")
    for source in (tmp_path / name, str(tmp_path / name), [tmp_path / name]):
        assert ReplayEstimator(source).estimate([workload("a")]) == [Cost(1e-3)]


def test_an_open_database_will_do(tmp_path: Path) -> None:
    with RecordDatabase(tmp_path / "records.db") as database:
        database.put(record("a", 2.0))
        assert ReplayEstimator(database).estimate([workload("a")]) == [Cost(2.0)]


def test_the_version_observed_last_is_served_in_whatever_order_logs_are_read(tmp_path: Path) -> None:
    old = log(tmp_path, record("a", 1.0, day=1), record("b", 5.0, day=9), name="old.jsonl")
    new = log(tmp_path, record("a", 2.0, day=2, backend_version="2.0"), name="new.jsonl")
    for sources in ([old, new], [new, old]):
        assert ReplayEstimator(sources).estimate([workload("a"), workload("b")]) == [Cost(2.0), Cost(5.0)]


def test_observations_of_one_key_in_several_logs_are_aggregated(tmp_path: Path) -> None:
    """As those of one database are: the newest of three is no better than the others."""
    observed = [replace(record("a", seconds, day=int(seconds)), session=f"{seconds}") for seconds in (3.0, 4.0, 9.0)]
    logs = [log(tmp_path, each, name=f"{number}.jsonl") for number, each in enumerate(observed, 1)]
    failed = log(tmp_path, record("a", None, day=4), name="4.jsonl")
    for sources in (logs, logs[::-1], [*logs, failed], [str(path) + ".db" for path in logs]):
        (cost,) = ReplayEstimator(sources).estimate([workload("a")])
        assert cost.seconds == 4.0


def test_several_devices_are_refused_until_one_is_chosen(tmp_path: Path) -> None:
    source = log(tmp_path, record("a", 1.0), record("a", 2.0, day=2, device="cpu-b"))
    with pytest.raises(RecordsError, match=r"2 devices.*device=.*cpu-a; cpu-b"):
        ReplayEstimator(source).estimate([workload("a")])
    assert ReplayEstimator(source, device="cpu-a").estimate([workload("a")]) == [Cost(1.0)]
    with pytest.raises(RecordsError, match=r"device cpu-c; there are: cpu-a; cpu-b"):
        ReplayEstimator(source, device="cpu-c").estimate([workload("a")])


def test_several_protocols_are_refused_until_one_is_chosen(tmp_path: Path) -> None:
    source = log(tmp_path, record("a", 1.0), record("a", 0.5, day=2, protocol=protocol_json(HOT)))
    with pytest.raises(RecordsError, match="2 measuring protocols"):
        ReplayEstimator(source).estimate([workload("a")])
    assert ReplayEstimator(source, protocol=COLD).estimate([workload("a")]) == [Cost(1.0)]


def test_of_more_and_of_fewer_samples_the_newest_serves(tmp_path: Path) -> None:
    longer = protocol_json(Protocol(max_samples=99))
    source = log(tmp_path, record("a", 1.0), record("a", 0.5, day=2, protocol=longer), record("b", 2.0))
    assert ReplayEstimator(source).estimate([workload("a"), workload("b")]) == [Cost(0.5), Cost(2.0)]


def test_what_was_evicted_for_a_network_like_the_workloads_is_served(tmp_path: Path) -> None:
    of_size = [protocol_json(Protocol(evict_bytes=size << 20)) for size in (1, 8, 64)]
    measured = [record("a", float(i), day=4 - i, protocol=each) for i, each in enumerate(of_size, 1)]
    source = log(tmp_path, *measured, record("b", 9.0, protocol=of_size[0]))
    asked = [replace(workload("a"), working_set=size << 20) for size in (1, 4, 16, 256)]
    assert [cost.seconds for cost in ReplayEstimator(source).estimate(asked)] == [1.0, 2.0, 2.0, 3.0]
    assert ReplayEstimator(source).estimate([workload("a"), workload("b")]) == [Cost(3.0), Cost(9.0)]
    assert ReplayEstimator(source, protocol=Protocol(evict_bytes=1 << 20)).estimate(asked[3:]) == [Cost(1.0)]


def test_one_number_of_threads_serves_all_and_of_several_the_workloads_own(tmp_path: Path) -> None:
    one = log(tmp_path, record("a", 1.0, threads=8), name="one.jsonl")
    assert ReplayEstimator(one).estimate([workload("a", threads=2)]) == [Cost(1.0)]
    two = log(tmp_path, record("a", 3.0, threads=2), record("b", 4.0, threads=8), name="two.jsonl")
    a, b = ReplayEstimator([one, two]).estimate([workload("a", threads=2), workload("b", threads=2)])
    assert a == Cost(3.0)
    assert b.is_unknown and b.reason == "recorded with 8 threads, not with 2"


def test_library_patterns_are_matched(tmp_path: Path) -> None:
    source = log(tmp_path, record("a", 1.0, composites=(("gone.conv", (0,)),)))
    hit, miss = ReplayEstimator(source).estimate([workload("a", composites=(("gone.conv", (0,)),)), workload("a")])
    assert hit == Cost(1.0)
    assert miss.is_unknown and "library patterns" in miss.reason


def test_misses_go_to_the_fallback_in_one_batch_and_once_each(tmp_path: Path) -> None:
    first, second = log(tmp_path, record("a", 1.0), name="1.jsonl"), log(tmp_path, record("b", 2.0), name="2.jsonl")
    chain = ReplayEstimator(first, fallback=ReplayEstimator(second))
    costs = chain.estimate([workload(name) for name in ("b", "a", "c", "b")])
    assert [str(c) for c in costs] == [str(Cost(2.0)), str(Cost(1.0)), "unknown", str(Cost(2.0))]


def hand_over(pair: str, seconds: float | None, day: int = 1, size: int | None = 1024) -> Record:
    """What the consumer took after the producer."""
    made = record("probe", seconds, day, kind="transition", backend=pair, backend_version=f"{day} {size}")
    return made if size is None else replace(made, description={"bytes": size})


def test_transitions_are_served_as_costs_are(tmp_path: Path) -> None:
    """The newest counts; of pairs that were not measured, or not alone, nothing is said; old records are no help."""
    between = [
        *(hand_over("y->y", 3.0), hand_over("x->y", 9.0), hand_over("x->y", 5.0, day=2)),
        *(hand_over("x->x", 1.0), hand_over("y->x", 0.5), hand_over("z->x", None), hand_over("x->z", 2.0)),
        hand_over("z->y", 7.0, size=None),
    ]
    replay = ReplayEstimator(log(tmp_path, record("a", 1.0), *between))
    found = replay.transitions(["x", "y", "z"], threads=4)
    assert {pair: (t.latency, t.measured[0][1]) for pair, t in found.items()} == {
        ("x", "y"): (2.0, 2.0),
        ("y", "x"): (0.0, -0.5),
    }


def test_it_is_pickled_with_what_it_has_read(tmp_path: Path) -> None:
    source = log(tmp_path, record("a", 1.0))
    used = ReplayEstimator(source)
    used.estimate([workload("a")])
    copy = pickle.loads(pickle.dumps(used))
    source.unlink()
    assert copy.estimate([workload("a")]) == [Cost(1.0)]


def test_what_cannot_be_replayed_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "milk").write_text("milk\n")
    with RecordDatabase(tmp_path / "empty.db"):
        pass
    for name, reason in (("none", "No such file"), ("milk", "not a benchmark log"), ("empty.db", "nothing to replay")):
        with pytest.raises(RecordsError, match=reason):
            ReplayEstimator(tmp_path / name).estimate([workload()])
    assert not (tmp_path / "none").exists(), "replaying makes no database"


def test_a_search_on_replayed_costs(tmp_path: Path) -> None:
    """Candidates by the rules of real backends, costs and transitions from a log: nothing is built or run."""
    module = convolutions()
    graph = read_graph(module)
    backends: dict[str, Backend] = {b.name: b for b in (OpenVINOBackend(), ONNXRuntimeBackend())}
    factory = WorkloadFactory(module, graph, backends, threads=2)
    candidates = gather_candidates(graph, [PartitionSpec(b.rule(), b.name) for b in backends.values()])
    rates = {"openvino": 2.0, "onnxruntime": 3.0}
    workloads = [factory.of(c) for c in candidates if c.backend in rates]
    records = [
        record(w.structure, rates[w.backend.name] + len(w.operators) / 10, backend=w.backend.name) for w in workloads
    ]
    records += [hand_over("openvino->onnxruntime", 0.5), hand_over("onnxruntime->onnxruntime", 0.25)]
    replay = ReplayEstimator(log(tmp_path, *records, name="log.jsonl.gz"))
    found = DijkstraSearcher().search(
        SearchProblem(
            graph,
            candidates,
            CostTable(lambda asked: replay.estimate([factory.of(c) for c in asked])),
            replay.transitions(backends, 2),
        )
    )
    assert [c.backend for c in found.partitions] == ["openvino"]
    assert found.cost.seconds == pytest.approx(2 + len(graph.coverable) / 10)


_WITHOUT = """
import sys
sys.modules["openvino"] = sys.modules["onnxruntime"] = None
from collage.backends.onnx.openvino import OpenVINOBackend
from collage.rules.base import PartitionSpec
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.from_relax import read_graph
from collage.testing.networks import convolutions
from collage.measure.workloads import WorkloadFactory
from estimators.replay import ReplayEstimator
module = convolutions()
graph = read_graph(module)
backend = OpenVINOBackend()
found = PartitionSpec(backend.rule(), backend.name).candidates(graph)
factory = WorkloadFactory(module, graph, {"openvino": backend}, 2)
print(ReplayEstimator(sys.argv[1]).estimate([factory.of(found[0])])[0])
"""


def test_the_backends_libraries_need_not_be_installed(tmp_path: Path) -> None:
    module = convolutions()
    graph, backend = read_graph(module), OpenVINOBackend()
    first = PartitionSpec(backend.rule(), backend.name).candidates(graph)[0]
    structure = WorkloadFactory(module, graph, {"openvino": backend}, 2).of(first).structure
    source = log(tmp_path, record(structure, 4e-3, backend="openvino"))
    command = [sys.executable, "-c", _WITHOUT, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=250)
    assert done.stdout == "4 ms\n", done.stderr
