"""Ranges of values over several samples, by each method; what has no range is not quantised."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax

from collage.accuracy.calibration import METHODS, calibrated, calibrated_once
from collage.annotations.precision import UNKNOWN, ranges_of
from collage.errors import CollageError, ModelInputError
from collage.frontend import load
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.from_relax import read_graph
from collage.measure.reference import ReferenceRun
from collage.records import RecordDatabase


def _module(body: Callable[[Any, Any], Any], *shapes: tuple[int, ...], dtype: str = "float32") -> Any:
    params = [relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, shape in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(body(builder, *params))
        builder.emit_func_output(result)
    return load(builder.get())


def _relu_of_sum(builder: Any, x: Any) -> Any:
    return builder.emit(relax.op.nn.relu(builder.emit(relax.op.add(x, relax.const(1.0)))))


class _Given(ReferenceRun):
    """A run whose single value is given."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def values(self, indices: Any) -> tuple[np.ndarray, ...]:
        return tuple(self.array for _ in indices)


def test_what_was_seen_once_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the weights, and the samples in their order."""
    module = _module(_relu_of_sum, (4,))
    graph = read_graph(module)
    samples = [[np.asarray(values, np.float32)] for values in ([0.5, -3, 1, 2], [4, 0, 0, 0.1])]
    runs: list[object] = []
    run = ReferenceRun._run
    monkeypatch.setattr(ReferenceRun, "_run", lambda self, program: (runs.append(self), run(self, program))[1])
    with RecordDatabase(tmp_path / "records.db") as database:

        def ranges(given: list[list[np.ndarray]], network: str = "a") -> list[tuple[float, float]]:
            reference = ReferenceRun(module, graph, 1)
            return ranges_of(calibrated_once(module, graph, reference, given, network, database))

        first = ranges(samples)
        assert first == [(-3.0, 4.0), (-2.0, 5.0), (0.0, 5.0)] and len(runs) == 2
        assert ranges(samples) == first and len(runs) == 2
        assert ranges(samples[:1])[0] == (-3.0, 2.0) and len(runs) == 3
        assert ranges(samples, "b") == first and len(runs) == 5
        assert [record.key.kind for record in database] == ["calibration"] * 3


@pytest.fixture(scope="module")
def one_value() -> tuple[Any, DataflowGraph]:
    """A network whose only values are its input and its output."""
    module = _module(lambda builder, x: builder.emit(relax.op.nn.relu(x)), (4,))
    return module, read_graph(module)


def _range(one_value: tuple[Any, DataflowGraph], method: str, *arrays: np.ndarray) -> tuple[float, float]:
    module, graph = one_value
    traces = (_Given(np.asarray(array, np.float32)) for array in arrays)
    return read_graph(calibrated(module, graph, traces, method)).nodes[0].range


def test_ranges_are_those_of_all_samples_together() -> None:
    module = _module(_relu_of_sum, (4,))
    graph = read_graph(module)
    samples = [np.array(s, np.float32) for s in ([-3, 0, 1, 2], [-1, 0, 0, 5])]
    reference = ReferenceRun(module, graph, 1)
    ranges = [n.range for n in read_graph(calibrated(module, graph, (reference.on([s]) for s in samples))).nodes]
    known = [ends for node, ends in zip(graph.nodes, ranges, strict=True) if node.var is not None]
    assert known == [(-3, 5), (-2, 6), (0, 6)]


def test_the_network_is_compiled_once_for_all_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    import collage.measure.reference as reference

    compiled, asked = reference.compile_partitioned, []
    monkeypatch.setattr(
        reference,
        "compile_partitioned",
        lambda *a, **k: asked.append(a) or compiled(*a, **k),  # type: ignore[func-returns-value]
    )
    module = _module(_relu_of_sum, (4,))
    run = reference.ReferenceRun(module, read_graph(module), 1)
    for scale in (1, 2):
        given = np.full(4, scale, np.float32)
        assert run.on([given]).outputs[0][0] == scale + 1
    assert len(asked) == 1


def test_samples_are_folded_one_by_one(one_value: tuple[Any, DataflowGraph]) -> None:
    alive: list[int] = []

    def traces() -> Iterator[ReferenceRun]:
        for i in range(3):
            alive.append(i)
            yield _Given(np.full(4, i, np.float32))
            assert alive == list(range(i + 1))

    calibrated(*one_value, traces())
    assert alive == [0, 1, 2]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ([[0.0, 0.0]], UNKNOWN),
        ([[]], UNKNOWN),
        ([[np.inf, 1.0]], UNKNOWN),
        ([[1.0], [np.nan, 1.0]], UNKNOWN),
        ([[2.0, 2.0]], (2.0, 2.0)),
        ([[-2.0]], (-2.0, -2.0)),
        ([[], [0.5], [0.0]], (0.0, 0.5)),
    ],
)
def test_what_is_empty_constant_or_infinite(
    one_value: tuple[Any, DataflowGraph], method: str, arrays: Any, expected: tuple[float, float]
) -> None:
    assert _range(one_value, method, *arrays) == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("method", ["percentile", "mse"])
def test_a_rare_extreme_is_cut_off(one_value: tuple[Any, DataflowGraph], method: str) -> None:
    values = np.random.default_rng(0).normal(size=40_000).astype(np.float32)
    values[0] = 50.0
    low, high = _range(one_value, method, values)
    assert _range(one_value, "minmax", values)[1] == 50
    assert -5 <= low <= -1.5
    assert 3 < high < 49


def test_percentiles_are_numpys(one_value: tuple[Any, DataflowGraph]) -> None:
    values = np.random.default_rng(1).permutation(np.linspace(-1, 3, 90_000) ** 3).astype(np.float32).reshape(3, -1)
    low, high = _range(one_value, "percentile", *values)
    assert [low, high] == pytest.approx(list(np.quantile(values, [0.00005, 0.99995])), abs=2 * 64 / 8192)


def test_mean_square_is_least_among_ranges(one_value: tuple[Any, DataflowGraph]) -> None:
    values = np.abs(np.random.default_rng(2).standard_t(3, size=50_000)).astype(np.float32)
    _, high = _range(one_value, "mse", values)

    def error(top: float) -> float:
        scale = top / 255
        return float(np.mean((values - np.rint(np.clip(values, 0, top) / scale) * scale) ** 2))

    tried = np.linspace(0.02, 1.0, 200) * values.max()
    assert error(high) <= 1.03 * min(map(error, tried))


@pytest.mark.parametrize("method", ["percentile", "mse"])
def test_the_order_of_samples_does_not_matter(one_value: tuple[Any, DataflowGraph], method: str) -> None:
    rng = np.random.default_rng(3)
    samples = [rng.normal(size=5000) * scale for scale in (1e-3, 1.0, 40.0)]
    assert _range(one_value, method, *samples) == _range(one_value, method, *reversed(samples))


@pytest.mark.parametrize("method", METHODS)
def test_masks_of_the_lowest_number_have_a_range(one_value: tuple[Any, DataflowGraph], method: str) -> None:
    lowest = float(np.finfo(np.float32).min)
    low, high = _range(one_value, method, np.array([lowest, 0.0, 0.0, lowest]))
    assert lowest <= low < 0.9 * lowest
    assert high == pytest.approx(0, abs=1e-3 * -lowest)


def test_other_types_have_no_range() -> None:
    module = _module(lambda builder, x: builder.emit(relax.op.add(x, x)), (4,), dtype="int32")
    graph = read_graph(module)
    run = ReferenceRun(module, graph, 1, [np.arange(4, dtype=np.int32)])
    assert all(node.range == UNKNOWN for node in read_graph(calibrated(module, graph, [run])).nodes)


def test_wrong_calls_are_one_line(one_value: tuple[Any, DataflowGraph]) -> None:
    with pytest.raises(CollageError, match="no method of calibration is called 'entropy'; valid names: minmax"):
        calibrated(*one_value, [], "entropy")
    with pytest.raises(ModelInputError, match="no samples to calibrate with"):
        calibrated(*one_value, [])
