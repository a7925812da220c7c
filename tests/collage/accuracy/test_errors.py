"""The error that operators add in less precision is what numpy says; it is measured once, and adds up."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax

import collage.accuracy.effects as effects
import collage.accuracy.errors as errors_module
from collage.accuracy.calibration import calibrated
from collage.accuracy.effects import Effect, Place, squared_errors
from collage.accuracy.errors import ErrorTable, sensitivities, squared_error
from collage.accuracy.program import on_engine
from collage.annotations.precision import BF16, FLOAT32, INT8
from collage.backends.base import Backend
from collage.backends.onednn.backend import OneDNNBackend
from collage.backends.onnx.export.quantisation import int8_weight_steps
from collage.backends.onnx.onnxruntime import ONNXRuntimeBackend
from collage.backends.onnx.openvino_bf16 import OpenVINOBf16Backend
from collage.errors import ModelInputError, PlanError
from collage.frontend import load
from collage.graph.candidates import HOST, CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.from_relax import read_graph
from collage.graph.index_set import IndexSet
from collage.graph.kinds import OpKind
from collage.graph.sub_graph import SubGraph
from collage.measure.reference import ReferenceRun
from collage.progress import Reporter
from collage.records import RecordDatabase, export_log, import_log

RNG = np.random.default_rng(0)
FIRST, SECOND = (RNG.normal(size=(16, 16)).astype(np.float32) for _ in range(2))
SAMPLES = [(RNG.normal(size=(4, 16)).astype(np.float32),) for _ in range(2)]


@pytest.fixture(scope="module")
def module() -> Any:
    """relu(x A) B, calibrated."""
    x = relax.Var("x", relax.TensorType((4, 16), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            hidden = builder.emit(relax.op.nn.relu(builder.emit(relax.op.matmul(x, relax.const(FIRST)))))
            result = builder.emit_output(relax.op.matmul(hidden, relax.const(SECOND)))
        builder.emit_func_output(result)
    loaded = load(builder.get())
    graph = read_graph(loaded)
    run = ReferenceRun(loaded, graph, 1)
    return calibrated(loaded, graph, (run.on(sample) for sample in SAMPLES))


@pytest.fixture(scope="module")
def graph(module: Any) -> DataflowGraph:
    return read_graph(module)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RecordDatabase]:
    with RecordDatabase(tmp_path / "records.db") as opened:
        yield opened


def measured(*arguments: Any) -> dict[Place, float]:
    """The squared error of each place."""
    found: dict[tuple[Place, int], Effect] = {}
    for each in effects.measured(*arguments):
        found |= each
    return squared_errors(found)


def _products(graph: DataflowGraph) -> list[int]:
    return [node.index for node in graph.nodes if node.op == "relax.matmul"]


def _table(module: Any, database: RecordDatabase, samples: Any = SAMPLES, backend: Backend | None = None) -> ErrorTable:
    backend = backend or ONNXRuntimeBackend()
    graph = read_graph(module)
    return sensitivities(module, graph, {backend.name: backend}, samples, 1, database, Reporter(), [FLOAT32, INT8])


def _quantised(data: np.ndarray, ends: tuple[float, float]) -> np.ndarray:
    low, high = min(ends[0], 0), max(ends[1], 0)
    scale = (high - low) / 255
    zero = np.rint(-low / scale)
    return (np.clip(np.rint(data / scale) + zero, 0, 255) - zero) * scale


def _in_eight_bits(data: np.ndarray, weights: np.ndarray, ends: tuple[float, float]) -> np.ndarray:
    scale = np.abs(weights).max(axis=0) / int8_weight_steps()
    return _quantised(data, ends) @ (np.rint(weights / scale) * scale)


def test_errors_are_numpys(
    module: Any, graph: DataflowGraph, database: RecordDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = _products(graph)
    ranges = [graph.nodes[graph.nodes[index].inputs[0]].range for index in (first, second)]
    expected = {first: 0.0, second: 0.0}
    for (x,) in SAMPLES:
        hidden = np.maximum(x @ FIRST, 0)
        real = hidden @ SECOND
        without = {
            first: np.maximum(_in_eight_bits(x, FIRST, ranges[0]), 0) @ SECOND,
            second: _in_eight_bits(hidden, SECOND, ranges[1]),
        }
        for index, output in without.items():
            expected[index] += float(np.sum((output - real) ** 2) / np.sum(real**2)) / len(SAMPLES)
    monkeypatch.setattr(effects, "_EVERY", 1)
    table = _table(module, database)
    for index in (first, second):
        assert table.of(index, INT8) == pytest.approx(expected[index], rel=0.05)
        assert 1e-6 < table.of(index, INT8) < 1e-3


def test_the_second_call_runs_nothing(module: Any, database: RecordDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _table(module, database)

    def refuses(*args: Any) -> Any:
        raise AssertionError("measured again")

    monkeypatch.setattr(errors_module, "measured", refuses)
    assert _table(module, database) == first
    with pytest.raises(AssertionError, match="measured again"):
        _table(module, database, [(2 * SAMPLES[0][0],)])


def test_what_was_interrupted_goes_on_where_it_was(
    module: Any, graph: DataflowGraph, database: RecordDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of the network on one sample is measured once, whatever comes in between."""
    monkeypatch.setattr(effects, "_OPERATORS", 1)
    parts = len(_products(graph)) * len(SAMPLES)
    ran: list[object] = []
    real = effects._Part.effects

    def counted(self: Any, run: Any, due: Any) -> Any:
        if len(ran) == parts // 2:
            ran.append("interrupted")
            raise KeyboardInterrupt
        ran.append(self)
        return real(self, run, due)

    monkeypatch.setattr(effects._Part, "effects", counted)
    with pytest.raises(KeyboardInterrupt):
        _table(module, database)
    assert len(database) == parts // 2
    resumed = _table(module, database)
    assert len(ran) == parts + 1 and len(database) == parts
    with RecordDatabase(tmp_path / "other.db") as other:
        assert _table(module, other) == resumed


def test_a_gain_that_no_sample_has_is_measured(module: Any, database: RecordDatabase, tmp_path: Path) -> None:
    """Of one operator in two, the first sample has no gain."""
    _table(module, database)
    with RecordDatabase(tmp_path / "other.db") as other:
        assert _table(module, database, SAMPLES[:1]) == _table(module, other, SAMPLES[:1])


def test_what_was_measured_travels_in_a_log(module: Any, database: RecordDatabase, tmp_path: Path) -> None:
    table = _table(module, database)
    assert export_log(database, tmp_path / "log.jsonl") == len(_products(read_graph(module))) * len(SAMPLES)
    with RecordDatabase(tmp_path / "other.db") as other:
        import_log(other, tmp_path / "log.jsonl")
        assert {record.key.kind for record in other} == {"sensitivity"}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(errors_module, "measured", None)
            assert _table(module, other) == table


def test_measuring_again_gives_the_same(module: Any, database: RecordDatabase, tmp_path: Path) -> None:
    with RecordDatabase(tmp_path / "other.db") as other:
        assert _table(module, database) == _table(module, other)


def test_weights_samples_and_ranges_are_part_of_what_is_recalled(
    module: Any, graph: DataflowGraph, database: RecordDatabase
) -> None:
    _table(module, database)
    known = len(database)
    _table(module, database, SAMPLES[::-1])
    assert len(database) == known
    _table(module, database, [(2 * x,) for (x,) in SAMPLES])
    assert len(database) == 2 * known
    run = ReferenceRun(module, graph, 1)
    _table(calibrated(module, graph, [run.on(SAMPLES[0])]), database)
    assert 2 * known < len(database) <= 3 * known


def test_starting_in_the_middle_equals_starting_at_the_beginning(
    module: Any, graph: DataflowGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = ONNXRuntimeBackend()
    places = [Place(index, INT8, backend) for index in _products(graph)]
    run = ReferenceRun(module, graph, 1)

    def found() -> dict[Place, float]:
        return measured(module, graph, [backend], places, SAMPLES, run, Reporter())

    whole = found()
    monkeypatch.setattr(effects, "_OPERATORS", 1)
    assert found() == pytest.approx(whole, rel=1e-4)


def test_networks_that_no_engine_takes_run_on_tvm(module: Any, graph: DataflowGraph) -> None:
    backend = ONNXRuntimeBackend()
    places = [Place(index, INT8, backend) for index in _products(graph)]
    run = ReferenceRun(module, graph, 1)
    by_tvm, by_engine = (
        measured(module, graph, engines, places, SAMPLES, run, Reporter()) for engines in ([], [backend])
    )
    assert by_tvm == pytest.approx(by_engine, rel=1e-3)


def test_errors_of_a_whole_network_are_about_the_sum(module: Any, graph: DataflowGraph) -> None:
    backend = ONNXRuntimeBackend()
    places = [Place(index, INT8, backend) for index in _products(graph)]
    run = ReferenceRun(module, graph, 1)
    found = measured(module, graph, [backend], places, SAMPLES, run, Reporter())
    position = {index: i for i, index in enumerate(graph.coverable)}
    labelled = {position[i]: [graph.nodes[graph.nodes[i].inputs[0]].range] for i in _products(graph)}
    whole = on_engine(module["main"], backend, 1, labelled)
    seen = np.mean([squared_error(whole(sample), run.on(sample).outputs) for sample in SAMPLES])
    assert seen == pytest.approx(sum(found.values()), rel=0.5)


def test_without_samples_nothing_is_measured(module: Any, database: RecordDatabase) -> None:
    with pytest.raises(ModelInputError, match="there are no samples to measure errors on"):
        _table(module, database, [])


def test_what_was_not_calibrated_is_not_quantised(module: Any, graph: DataflowGraph, database: RecordDatabase) -> None:
    from collage.annotations.precision import UNKNOWN, with_ranges

    bare = with_ranges(module, [UNKNOWN] * 4)
    assert [_table(bare, database).of(index, INT8) for index in _products(graph)] == [math.inf, math.inf]
    assert len(database) == 0


GRAPH = DataflowGraph.from_edges(
    [("dense", OpKind.ANCHOR, []), ("relu", OpKind.ELEMENTWISE, [0]), ("d", OpKind.ANCHOR, [1])]
)
TABLE = ErrorTable({INT8: {0: 0.5, 2: 1.0}, BF16: {0: 0.25, 2: math.inf}})


def _candidate(nodes: list[int], labelled: Mapping[str, list[int]], backend: str = "b") -> CandidatePartition:
    composites = tuple((label, IndexSet(own)) for label, own in labelled.items())
    return CandidatePartition(SubGraph(GRAPH, IndexSet(nodes)), backend, composites)


@pytest.mark.parametrize(
    ("nodes", "labelled", "precision", "expected"),
    [
        ([0, 1, 2], {}, FLOAT32, 0.0),
        ([0, 1, 2], {INT8: [0, 2]}, FLOAT32, 1.5),
        ([0, 1], {"other": [0]}, FLOAT32, 0.0),
        ([0, 1], {}, BF16, 0.25),
        ([0, 1], {INT8: [0]}, BF16, 0.5),
        ([0, 1, 2], {INT8: [0]}, BF16, math.inf),
        ([1], {}, BF16, 0.0),
        ([0, 1, 2], {"pattern": [0]}, INT8, 1.5),
        ([0], {}, "fp8", math.inf),
    ],
)
def test_errors_of_candidates(
    nodes: list[int], labelled: Mapping[str, list[int]], precision: str, expected: float
) -> None:
    assert TABLE.squared(_candidate(nodes, labelled), precision) == expected
    assert TABLE.scaled(2.0).scaled(2.0).squared(_candidate(nodes, labelled), precision) == 4 * expected


def test_the_host_adds_no_error() -> None:
    assert TABLE.squared(_candidate([0], {}, HOST), BF16) == 0


def test_tables_are_plain_data() -> None:
    import json

    table = TABLE.scaled(1.5)
    assert ErrorTable.from_dict(json.loads(json.dumps(table.as_dict(), allow_nan=False))) == table
    for wrong in ({}, {"errors": [], "factor": 1}, {"errors": {"int8": {"x": 1}}, "factor": 1}):
        with pytest.raises(PlanError, match="the table of errors is malformed"):
            ErrorTable.from_dict(wrong)


F = np.float32


@pytest.mark.parametrize(
    ("ours", "reference", "expected"),
    [
        ([F([1, 1])], [F([1, 0])], 1.0),
        ([F([3, 4]), F([2])], [F([3, 4]), F([1])], 1.0),
        ([F([0.0])], [F([0.0])], 0.0),
        ([F([1.0])], [F([0.0])], math.inf),
        ([F([np.nan, 1])], [F([1, 1])], math.inf),
        ([F([np.inf, 2])], [F([np.inf, 1])], 1.0),
        ([F([-np.inf, 1])], [F([np.inf, 1])], math.inf),
        ([np.array([1, 2, 3, 4])], [np.array([1, 2, 3, 5])], 0.25),
        ([np.array([True])], [np.array([False])], 1.0),
        ([F([])], [F([])], 0.0),
    ],
)
def test_the_error_of_outputs(ours: list[np.ndarray], reference: list[np.ndarray], expected: float) -> None:
    assert squared_error(ours, reference) == expected


class _Rounding(OneDNNBackend):
    """oneDNN under another precision's name: its errors are those of float32."""

    precision = BF16


def test_a_library_backend_represents_a_precision_that_no_engine_has(
    module: Any, graph: DataflowGraph, database: RecordDatabase
) -> None:
    backends: dict[str, Backend] = {"onednn": _Rounding(), "onnxruntime": ONNXRuntimeBackend()}
    table = sensitivities(module, graph, backends, SAMPLES, 1, database, Reporter(), [BF16])
    assert table.errors == {BF16: dict.fromkeys(_products(graph), 0.0)}


def test_nothing_is_known_of_a_precision_without_a_backend(
    module: Any, graph: DataflowGraph, database: RecordDatabase
) -> None:
    table = sensitivities(module, graph, {}, SAMPLES, 1, database, Reporter(), [FLOAT32, BF16])
    assert table.of(0, BF16) == math.inf
    assert table.of(0, FLOAT32) == 0


@pytest.mark.skipif(not OpenVINOBf16Backend().availability().available, reason="no instructions for bfloat16")
def test_a_second_precision_follows_from_its_own_error(module: Any, graph: DataflowGraph) -> None:
    run = ReferenceRun(module, graph, 1)
    backend, narrow = ONNXRuntimeBackend(), OpenVINOBf16Backend()
    first = [Place(index, INT8, backend) for index in _products(graph)]
    second = [Place(index, BF16, narrow) for index in _products(graph)]
    alone, together = (
        measured(module, graph, [backend], p, SAMPLES, run, Reporter()) for p in (second, first + second)
    )
    for place in second:
        assert together[place] == pytest.approx(alone[place], rel=0.7)
        assert 1e-7 < alone[place] < 1e-4
