"""Which partitions the cublas backend offers, and which it must not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from product_cases import Case, candidates, constant, labels, nn, op
from tvm import relax

import collage
from benchmarks.workloads import build
from collage.backends.cuda.cublas import CublasBackend
from collage.errors import PluginError

pytestmark = pytest.mark.emulation

W, B = constant((8, 6)), constant((6,), 101)


def found_in(make: Callable[..., Any], *shapes: tuple[int, ...], dtype: str = "float32") -> list[str]:
    module = Case("", shapes, make, np.zeros).module(dtype)
    return [label.removeprefix("cublas.") for label in labels(candidates(module, CublasBackend())[1])]


def test_every_part_of_an_epilogue_is_a_candidate_of_its_own() -> None:
    made = found_in(lambda e, x: nn.relu(e(op.add(e(op.matmul(x, W(x))), B(x)))), (5, 8))
    assert made == ["matmul", "matmul_bias", "matmul_bias_relu"]
    made = found_in(lambda e, x, r: op.add(e(op.add(e(op.matmul(x, W(x))), B(x))), r), (5, 8), (5, 6))
    assert made == ["matmul", "matmul_bias", "matmul_bias_residual"]


def test_a_sum_of_two_products_is_the_residual_of_either() -> None:
    module = Case("", ((5, 8),), lambda e, x: op.add(e(op.matmul(x, W(x))), e(op.matmul(x, W(x)))), np.zeros)
    _, found = candidates(module.module("float32"), CublasBackend())
    sums = [c for c in found if c.composites[0][0] == "cublas.matmul_residual"]
    assert len(sums) == 2 and sums[0].sub_graph.inside != sums[1].sub_graph.inside


def test_on_one_row_a_bias_is_not_offered_as_a_residual_too() -> None:
    made = found_in(lambda e, x: op.add(e(op.matmul(x, W(x))), constant((1, 6))(x)), (1, 8))
    assert made == ["matmul", "matmul_bias"]


@pytest.mark.parametrize(
    ("what", "make"),
    [
        ("the erf form of GELU", lambda e, x: nn.gelu(e(op.matmul(x, W(x))))),
        ("a bias along the rows", lambda e, x: op.add(e(op.matmul(x, W(x))), constant((5, 1))(x))),
        ("a scalar that is added", lambda e, x: op.add(e(op.matmul(x, W(x))), relax.const(np.float32(1)))),
        ("a tensor that broadcasts the result", lambda e, x: op.add(e(op.matmul(x, W(x))), constant((2, 5, 6))(x))),
        ("a division of a scalar", lambda e, x: op.divide(relax.const(np.float32(1)), e(op.matmul(x, W(x))))),
        ("a factor per column", lambda e, x: op.multiply(e(op.matmul(x, W(x))), B(x))),
    ],
)
def test_what_no_epilogue_computes_is_left_outside(what: str, make: Callable[..., Any]) -> None:
    assert found_in(make, (5, 8)) == ["matmul"], what


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_in_half_precision_gelus_tanh_form_stands_for_the_erf_form(dtype: str) -> None:
    made = found_in(lambda e, x: nn.gelu(e(op.add(e(op.matmul(x, W(x))), B(x)))), (5, 8), dtype=dtype)
    assert made == ["matmul", "matmul_bias", "matmul_bias_gelu_erf"]


def test_a_formula_with_other_numbers_than_gelus_is_left_outside() -> None:
    def number(value: float) -> Any:
        return relax.const(np.float32(value))

    def almost(e: Any, x: Any) -> Any:
        y = e(op.matmul(x, W(x)))
        cube = e(op.multiply(e(op.power(y, number(3.0))), number(0.0547)))
        inner = e(op.tanh(e(op.multiply(e(op.add(y, cube)), number(0.7978846)))))
        return op.multiply(e(op.multiply(y, number(0.5))), e(op.add(inner, number(1.0))))

    assert found_in(almost, (5, 8)) == ["matmul"]


def test_only_floats_of_one_dtype_are_taken() -> None:
    assert found_in(lambda e, x, y: op.matmul(x, y), (5, 8), (8, 6), dtype="int32") == []
    assert found_in(lambda e, x, y: op.matmul(x, y), (5, 8), (8, 6), dtype="float64") == []
    assert found_in(lambda e, x, y: op.matmul(x, y, out_dtype="float32"), (5, 8), (8, 6), dtype="float16") == []
    assert found_in(lambda e, x, y: op.matmul(x, y), (5, 8), (8, 6), dtype="bfloat16") == ["matmul"]


def test_a_batch_that_would_take_many_calls_is_not_taken() -> None:
    assert found_in(lambda e, x, y: op.matmul(x, y), (4, 1, 5, 8), (4, 8, 6)) == ["matmul"]
    assert found_in(lambda e, x, y: op.matmul(x, y), (20, 1, 5, 8), (20, 8, 6)) == []


def test_an_operand_that_is_contiguous_along_neither_axis_is_permuted_by_others() -> None:
    module = Case("", ((5, 3, 8), (3, 7)), lambda e, x, y: op.matmul(e(op.permute_dims(x, [0, 2, 1])), y), np.zeros)
    _, found = candidates(module.module("float32"), CublasBackend())
    assert [len(c.sub_graph.inside) for c in found] == [1, 2]  # transposed: 3 rows of 8 are read as 8 of 3
    module = Case(
        "", ((3, 5, 2, 4), (3, 7)), lambda e, x, y: op.matmul(e(op.permute_dims(x, [3, 2, 1, 0])), y), np.zeros
    )
    _, found = candidates(module.module("float32"), CublasBackend())
    assert [len(c.sub_graph.inside) for c in found] == [1]


def test_bert() -> None:
    """Products with biases and residuals, attention with its permutations; its GELU is the erf form."""
    graph, found = candidates(collage.load(build("tiny_bert")), CublasBackend())
    products = {node.index for node in graph.nodes if node.op == "relax.matmul"}
    alone = {
        index
        for c in found
        if c.composites[0][0] == "cublas.matmul" and len(c.sub_graph.inside) == 1
        for index in c.sub_graph.inside
    }
    assert alone == products
    assert [label.removeprefix("cublas.") for label in labels(found)] == [
        *("matmul", "matmul_bias", "matmul_bias_residual", "matmul_permute", "matmul_scale")
    ]
    scores = max(
        (c for c in found if c.composites[0][0] == "cublas.matmul_scale"), key=lambda c: len(c.sub_graph.inside)
    )
    operators = [graph.nodes[index].op for index in scores.sub_graph.inside]
    assert operators == ["relax.permute_dims", "relax.permute_dims", "relax.matmul", "relax.multiply"]


def test_resnet_ends_in_a_product_with_bias() -> None:
    assert labels(candidates(collage.load(build("tiny_resnet")), CublasBackend())[1]) == [
        "cublas.matmul",
        "cublas.matmul_bias",
    ]


def test_precision_is_part_of_the_key_and_has_to_be_known() -> None:
    keys = [CublasBackend(precision).configuration() for precision in ("float32", "tf32")]
    assert keys[0]["precision"] == "float32" and keys[0] != keys[1]
    with pytest.raises(PluginError, match="float32 or tf32, not 'fp8'"):
        CublasBackend("fp8").configuration()


def test_without_a_device_the_backend_says_so() -> None:
    answer = CublasBackend().availability()
    assert answer.available or "CUDA device" in answer.reason or "pip install" in answer.reason
