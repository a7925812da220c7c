"""Reference values, where a kernel cannot be compiled as it is scheduled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax

import collage.measure.reference as reference
from collage.errors import CodegenError, CollageError
from collage.frontend import load
from collage.frontend.passes.precision import dtypes_of
from collage.graph.from_relax import read_graph, with_node_ranges
from collage.graph.kinds import ValueKind
from collage.measure.inputs import random_inputs
from collage.measure.reference import ReferenceRun


def _module(body: Callable[..., Any], *shapes: tuple[int, ...], dtype: str = "float32") -> Any:
    """A network that is one operator."""
    params = [relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, shape in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(body(*params))
        builder.emit_func_output(result)
    return load(builder.get())


def _run_of(module: Any, *inputs: Any, **options: Any) -> ReferenceRun:
    return ReferenceRun(module, read_graph(module), 1, inputs or None, **options)


def test_a_schedule_that_does_not_compile_costs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = reference.compile_partitioned
    asked: list[bool] = []

    def refuses_schedules(*args: Any, scheduled: bool) -> Any:
        asked.append(scheduled)
        if scheduled:
            raise CodegenError("cannot compile: VectorizeLoop before LiftStorageAlloc")
        return compiled(*args, scheduled=scheduled)

    monkeypatch.setattr(reference, "compile_partitioned", refuses_schedules)
    run = _run_of(_module(relax.op.nn.relu, (4, 8)))
    np.testing.assert_array_equal(run.outputs[0], np.maximum(run.inputs[0], 0))
    assert asked == [True, False]


def test_what_does_not_compile_at_all_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*args: Any, scheduled: bool) -> Any:
        raise CodegenError("cannot compile: no such operator")

    monkeypatch.setattr(reference, "compile_partitioned", refuses)
    with pytest.raises(CollageError, match=r"cannot compute reference values .*: cannot compile: no such operator$"):
        _ = _run_of(_module(relax.op.nn.relu, (4, 8))).outputs


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_doubted_reference_is_computed_in_float64(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    """A sum of a thousand numbers, rounded once."""
    seen: list[frozenset[str]] = []
    compiled = reference.compile_partitioned

    def spied(module: Any, *args: Any, **options: Any) -> Any:
        seen.append(dtypes_of(module["main"]))
        return compiled(module, *args, **options)

    monkeypatch.setattr(reference, "compile_partitioned", spied)
    run = _run_of(_module(lambda x: relax.op.sum(x, [1]), (4, 997), dtype=dtype), scheduled=False)
    (total,) = run.outputs
    assert total.dtype == dtype and seen == [frozenset({"float64"})]
    np.testing.assert_array_equal(total, run.inputs[0].astype("float64").sum(1).astype(dtype))


def test_what_tvm_cannot_compute_in_float64_is_computed_in_float32() -> None:
    module = _module(lambda x, g, b: relax.op.nn.layer_norm(x, g, b, axes=[-1]), (4, 8), (8,), (8,))
    usual = _run_of(module)
    plain = _run_of(module, *usual.inputs, scheduled=False)
    np.testing.assert_allclose(plain.outputs[0], usual.outputs[0], rtol=1e-4, atol=1e-5)


def test_a_scalar_that_is_given_stays_one() -> None:
    run = _run_of(_module(relax.op.subtract, (), ()), np.float32(3.0), np.asarray(1.0, "float32"))
    assert run.outputs[0].shape == () and run.outputs[0] == 2.0


def test_outputs_and_values_come_from_one_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, calls = reference.compile_partitioned, []

    def counted(*args: Any, **options: Any) -> Any:
        calls.append(args)
        return compiled(*args, **options)

    monkeypatch.setattr(reference, "compile_partitioned", counted)
    run = _run_of(_module(relax.op.nn.relu, (4, 8)))
    (output,) = run.outputs
    np.testing.assert_array_equal(output, np.maximum(run.inputs[0], 0))
    (node,) = run.graph.coverable
    np.testing.assert_array_equal(run.values([node])[0], output)
    assert len(calls) == 1


def test_several_outputs_one_of_them_an_input() -> None:
    x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.nn.relu(x))
        builder.emit_func_output(relax.Tuple([result, x]))
    run = _run_of(load(builder.get()))
    assert len(run.outputs) == 2
    np.testing.assert_array_equal(run.outputs[0], np.maximum(run.inputs[0], 0))
    np.testing.assert_array_equal(run.outputs[1], run.inputs[0])


def test_a_calibrated_network_with_several_values_of_one_node_has_a_reference() -> None:
    """Fields of a tuple are bindings of their own in the program that shows all values."""
    module = _module(lambda x: relax.op.concat(relax.op.split(x, 2, axis=1), axis=0), (4, 8))
    graph = read_graph(module)
    assert ValueKind.TUPLE in {graph.nodes[i].value for i in graph.coverable}
    calibrated = with_node_ranges(module, {index: (-4.0, 4.0) for index in graph.coverable})
    run = _run_of(calibrated)
    np.testing.assert_array_equal(run.outputs[0], np.concatenate(np.split(run.inputs[0], 2, axis=1)))


def test_random_bytes_take_all_values() -> None:
    for dtype in ("int8", "uint8"):
        (array,) = random_inputs(_module(lambda x: relax.op.add(x, x), (64, 64), dtype=dtype))
        assert len(np.unique(array)) == 256


def test_scheduled_references_are_compiled_without_the_optimiser_of_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """And otherwise for the same processor and threads; plain kernels, which take long to run, are optimised."""
    compiled = reference.compile_partitioned
    targets: list[dict[str, Any]] = []

    def refuses_schedules(module: Any, backends: Any, threads: int, scheduled: bool) -> Any:
        targets.append(dict(backends[0].lowering(threads).target.export()))
        if scheduled:
            raise CodegenError("no schedule")
        return compiled(module, backends, threads, scheduled=scheduled)

    monkeypatch.setattr(reference, "compile_partitioned", refuses_schedules)
    assert np.all(_run_of(_module(relax.op.nn.relu, (2, 3))).outputs[0] >= 0)
    quick, plain = targets
    assert quick.pop("opt-level") == 0 and quick == plain


def test_a_network_in_float16_that_computes_nothing_has_a_reference() -> None:
    builder = relax.BlockBuilder()
    given = relax.Var("x", relax.TensorType((2,), "float16"))
    kept = np.array([1.0, 2.0], "float16")
    with builder.function("main", [given]):
        builder.emit_func_output(relax.const(kept))
    module = builder.get()
    (found,) = ReferenceRun(module, read_graph(module), 1).outputs
    np.testing.assert_array_equal(found, kept)


def test_kernels_of_references_do_not_check_their_arguments() -> None:
    """Checks would be most of the code, and hundreds of kernels are compiled to be run once."""
    module = _module(lambda a, b: relax.op.concat([a, b], axis=1), (4, 8), (4, 8))
    (kernels,) = reference._operator_by_operator(module, 1, scheduled=True).mod.imports
    assert kernels.kind == "llvm" and "__tvm_ffi_" in kernels.inspect_source("ll")
    assert "ValueError" not in kernels.inspect_source("ll")
    a, b = random_inputs(module, 0)
    np.testing.assert_array_equal(_run_of(module, a, b).outputs[0], np.concatenate([a, b], axis=1))
