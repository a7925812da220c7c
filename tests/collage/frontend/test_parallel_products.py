"""Products of one tensor that become heads, as one product: the same numbers, fewer products, slices for the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from relax_networks import Emit, called, network
from tvm import relax

from benchmarks.workloads import build
from collage.frontend import input_specs, load, output_specs
from collage.frontend.passes.device import for_device
from collage.frontend.passes.parallel_products import merged_products
from collage.frontend.passes.rewriting import bindings, call_to
from collage.graph.from_relax import read_graph
from collage.measure.reference import ReferenceRun

op, nn = relax.op, relax.op.nn


def weight(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    return relax.const((np.random.default_rng(seed).standard_normal(shape) / 4).astype(dtype))


def heads(emit: Emit, value: Any, count: int, axes: tuple[int, ...] = (0, 2, 1, 3)) -> Any:
    batch, rows, width = (int(extent) for extent in value.ty.shape)
    return emit(op.permute_dims(emit(op.reshape(value, (batch, rows, count, width // count))), axes))


def grouped(emit: Emit, x: Any, dtype: str = "float32", *, bias: bool = True) -> Any:
    """Queries of four heads, keys and values of two."""
    parts = []
    for seed, count in enumerate((4, 2, 2)):
        value = emit(op.matmul(x, weight(16, count * 8, dtype=dtype, seed=seed)))
        if bias:
            value = emit(op.add(value, weight(count * 8, dtype=dtype, seed=seed + 10)))
        parts.append(heads(emit, value, count, (0, 2, 3, 1) if seed == 1 else (0, 2, 1, 3)))
    return tuple(parts)


def assert_same_numbers(before: Any, after: Any, tolerance: float) -> None:
    assert (input_specs(after), output_specs(after)) == (input_specs(before), output_specs(before))
    runs = [ReferenceRun(module, read_graph(module), 1) for module in (before, after)]
    for expected, found in zip(runs[0].outputs, runs[1].outputs, strict=True):
        np.testing.assert_allclose(found.astype("float64"), expected.astype("float64"), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_queries_keys_and_values_of_a_transformer_are_one_product(dtype: str) -> None:
    module = load(build("tiny_bert", dtype=dtype))
    merged = for_device(module, "cuda")
    layers = 2
    change = {"matmul": -2 * layers, "add": -2 * layers, "strided_slice": 3 * layers}
    change["reshape"] = -2 * layers
    before, after = called(module), called(merged)
    assert {name: after[name] - before[name] for name in before | after if after[name] != before[name]} == change
    assert_same_numbers(module, merged, 1e-5 if dtype == "float32" else 5e-3)
    assert for_device(merged, "cuda") is merged
    assert for_device(module, "cpu") is module


@pytest.mark.parametrize("bias", [True, False])
def test_heads_of_queries_may_be_more_than_those_of_keys_and_values(bias: bool) -> None:
    module = network(lambda emit, x: grouped(emit, x, bias=bias), 2, 5, 16, dtype="float32")
    merged = merged_products(module)
    assert called(merged)["matmul"] == 1
    slices = [value for _, value in bindings(merged["main"]) if call_to(value, "relax.strided_slice")]
    # Of the heads, which are told apart once: the transposition that follows is all that is left to do.
    assert [[int(e) for e in s.ty.shape] for s in slices] == [[2, 5, 4, 8], [2, 5, 2, 8], [2, 5, 2, 8]]
    assert called(merged)["reshape"] == 1
    assert_same_numbers(module, merged, 1e-5)


def test_half_precision_keeps_its_type() -> None:
    module = network(lambda emit, x: grouped(emit, x, "bfloat16"), 1, 5, 16, dtype="bfloat16")
    merged = merged_products(module)
    assert called(merged)["matmul"] == 1
    tensors = [variable.ty for variable, value in bindings(merged["main"]) if isinstance(value, relax.Call)]
    assert {str(ty.dtype) for ty in tensors} == {"bfloat16"}


def test_a_split_before_heads_is_spelled_as_slices_of_heads() -> None:
    def body(emit: Emit, x: Any) -> Any:
        fused = emit(op.add(emit(op.matmul(x, weight(16, 48))), weight(48)))
        parts = emit(op.split(fused, 3, 2))
        return tuple(heads(emit, emit(relax.TupleGetItem(parts, i)), 2) for i in range(3))

    module = network(body, 1, 5, 16, dtype="float32")
    merged = merged_products(module)
    assert called(merged) == {"matmul": 1, "add": 1, "reshape": 1, "strided_slice": 3} | {"permute_dims": 3}
    assert_same_numbers(module, merged, 1e-6)
    assert merged_products(merged) is merged


def two(emit: Emit, x: Any, first: Callable[[Any], Any], second: Callable[[Any], Any]) -> Any:
    return first(emit(op.matmul(x, weight(16, 16)))), second(emit(op.matmul(x, weight(16, 16, seed=1))))


ALONE: dict[str, Callable[[Emit, Any], Any]] = {
    "one product": lambda e, x: heads(e, e(op.matmul(x, weight(16, 16))), 2),
    "a result of the network": lambda e, x: two(e, x, lambda v: v, lambda v: heads(e, v, 2)),
    "a product with another reader": lambda e, x: (
        *two(e, x, lambda v: e(op.matmul(v, heads(e, v, 1, (0, 1, 3, 2)))), lambda v: heads(e, v, 2)),
    ),
    "other heads": lambda e, x: two(e, x, lambda v: heads(e, v, 4), lambda v: heads(e, v, 2)),
    "a bias on one only": lambda e, x: two(
        e, x, lambda v: heads(e, e(op.add(v, weight(16))), 2), lambda v: heads(e, v, 2)
    ),
    "an activation": lambda e, x: two(e, x, lambda v: heads(e, e(nn.relu(v)), 2), lambda v: heads(e, v, 2)),
    "rows of their own": lambda e, x: (
        heads(e, e(op.matmul(x, weight(16, 16))), 2),
        heads(e, e(op.matmul(e(nn.relu(x)), weight(16, 16))), 2),
    ),
    "a split into what is no head": lambda e, x: tuple(
        e(nn.relu(e(relax.TupleGetItem(e(op.split(x, 2, 2)), i)))) for i in range(2)
    ),
}


@pytest.mark.parametrize("name", ALONE)
def test_what_would_gain_nothing_stays_as_it_is(name: str) -> None:
    module = network(ALONE[name], 1, 5, 16, dtype="float32")
    assert merged_products(module) is module


def test_weights_that_are_inputs_stay_apart() -> None:
    x = relax.Var("x", relax.TensorType((1, 5, 16), "float32"))
    weights = [relax.Var(f"w{i}", relax.TensorType((16, 16), "float32")) for i in range(2)]
    builder = relax.BlockBuilder()
    with builder.function("main", [x, *weights]):
        with builder.dataflow():
            parts = [heads(builder.emit, builder.emit(op.matmul(x, w)), 2) for w in weights]
            result = builder.emit_output(relax.Tuple(parts))
        builder.emit_func_output(result)
    module: tvm.IRModule = load(builder.get())
    assert merged_products(module) is module
