"""Kernels that walk memory in one direction do so with vector loads, whatever the width of a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm_partitions import f, partition

from collage.backends.tvm.flatten import flatten_addresses
from collage.backends.tvm.lower import cpu_target, one_kernel_per_partition
from collage.backends.tvm.schedule.kernel import schedule

R = relax.op
TARGET = cpu_target(2)


def scheduled(specs: Any, body: Any) -> Any:
    return schedule(one_kernel_per_partition(partition(specs, body), TARGET)["partition"], TARGET)


def compiled(func: Any) -> Any:
    return tvm.compile(func.with_attr("global_symbol", "main"), target=TARGET)


def run(func: Any, *inputs: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    result = tvm.runtime.tensor(np.full(shape, np.nan, "float32"))
    compiled(func)["main"](*(tvm.runtime.tensor(x) for x in inputs), result)
    return result.numpy()


def added(bb: Any, x: Any, y: Any) -> Any:
    return R.nn.relu(bb.emit(R.add(x, y)))


SHAPES = [(1, 144, 28, 28), (1, 3, 56, 56), (1, 16, 4, 14, 14), (2, 4, 5, 12), (3, 16, 40, 10), (4, 6, 20)]


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_that_no_vector_divides(shape: tuple[int, ...]) -> None:
    plain = scheduled([f(*shape), f(*shape)], added)
    flat = flatten_addresses(plain)
    assert not tvm_ffi.structural_equal(flat, plain)
    assert "extractelement" not in compiled(flat).mod.inspect_source("ll")
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape).astype("float32") for _ in range(2))
    np.testing.assert_array_equal(run(flat, x, y, shape=shape), np.maximum(x + y, 0))


def test_without_it_a_vector_is_taken_apart() -> None:
    """What the module is for: when this fails, TVM simplifies such sums itself, and the module can go."""
    plain = scheduled([f(1, 144, 28, 28), f(1, 144, 28, 28)], added)
    assert "extractelement" in compiled(plain).mod.inspect_source("ll")


@pytest.mark.parametrize("shape", [(1, 24, 28, 28), (1, 24, 7, 7), (1, 8, 4, 14, 14)])
def test_a_bias_keeps_its_axis(shape: tuple[int, ...]) -> None:
    bias = (1, shape[1], *[1] * (len(shape) - 2))
    flat = flatten_addresses(scheduled([f(*shape), f(*bias)], added))
    rng = np.random.default_rng(1)
    x, b = rng.standard_normal(shape).astype("float32"), rng.standard_normal(bias).astype("float32")
    np.testing.assert_array_equal(run(flat, x, b, shape=shape), np.maximum(x + b, 0))


def test_a_transposed_operand_keeps_its_indices() -> None:
    flat = flatten_addresses(
        scheduled(
            [f(1, 12, 28, 28), f(1, 28, 12, 28)], lambda bb, x, y: R.add(x, bb.emit(R.permute_dims(y, (0, 2, 1, 3))))
        )
    )
    rng = np.random.default_rng(2)
    x, y = (
        rng.standard_normal((1, 12, 28, 28)).astype("float32"),
        rng.standard_normal((1, 28, 12, 28)).astype("float32"),
    )
    np.testing.assert_array_equal(run(flat, x, y, shape=x.shape), x + y.transpose(0, 2, 1, 3))


@pytest.mark.parametrize(
    ("specs", "body"),
    [
        ([f(4, 64)], lambda bb, x: R.nn.softmax(x, -1)),
        ([f(3, 5, 7)], lambda bb, x: R.nn.relu(x)),
        ([f(1, 8, 14, 14), f(8, 8, 3, 3)], lambda bb, x, w: R.nn.conv2d(x, w, padding=(1, 1))),
    ],
    ids=["rows", "no whole vectors", "a convolution"],
)
def test_other_kernels_stay_as_they_are(specs: Any, body: Any) -> None:
    plain = scheduled(specs, body)
    assert tvm_ffi.structural_equal(flatten_addresses(plain), plain)
