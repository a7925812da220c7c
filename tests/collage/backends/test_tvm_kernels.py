"""Every kernel that the native backend schedules computes what NumPy computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
from tvm import relax
from tvm_partitions import check, f, partition, random_arrays, run

R = relax.op

MATMULS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "square": ((64, 64), (64, 64)),
    "wide": ((128, 96), (96, 384)),
    "one row": ((1, 96), (96, 384)),
    "prime sizes": ((17, 31), (31, 29)),
    "odd columns": ((8, 48), (48, 1003)),
    "rank 3 by rank 2": ((2, 32, 48), (48, 64)),
    "batched": ((12, 32, 16), (12, 16, 32)),
    "broadcast": ((1, 4, 8, 16), (2, 1, 16, 24)),
    "column": ((64, 64), (64, 1)),
}


@pytest.mark.parametrize("name", MATMULS)
def test_matmul_with_bias_and_gelu(name: str) -> None:
    a, b = MATMULS[name]

    def body(bb: Any, x: Any, w: Any, c: Any) -> Any:
        return R.nn.gelu(bb.emit(R.add(bb.emit(R.matmul(x, w)), c)))

    def reference(x: np.ndarray, w: np.ndarray, c: np.ndarray) -> np.ndarray:
        y = x.astype("float64") @ w + c
        return y * 0.5 * (1 + scipy.special.erf(y / np.sqrt(2)))

    check([f(*a), f(*b), f(b[-1])], body, reference)


def test_matmul_with_transposed_weight() -> None:
    check(
        [f(64, 48), f(96, 48)],
        lambda bb, x, w: R.matmul(x, bb.emit(R.permute_dims(w, [1, 0]))),
        lambda x, w: x.astype("float64") @ w.T,
    )


def test_attention_scores() -> None:
    def reference(q: np.ndarray, k: np.ndarray, m: np.ndarray) -> np.ndarray:
        s = np.einsum("bhqd,bhkd->bhqk", q, k).astype("float64") * 0.25 + m
        return scipy.special.softmax(s, axis=-1)

    def body(bb: Any, q: Any, k: Any, m: Any) -> Any:
        s = bb.emit(R.matmul(q, bb.emit(R.permute_dims(k, [0, 1, 3, 2]))))
        s = bb.emit(R.add(bb.emit(R.multiply(s, relax.const(0.25, "float32"))), m))
        return R.nn.softmax(s, axis=-1)

    check([f(1, 4, 32, 16), f(1, 4, 32, 16), f(1, 1, 1, 32)], body, reference)


def test_matmul_reshaped_and_transposed() -> None:
    def body(bb: Any, x: Any, w: Any) -> Any:
        heads = bb.emit(R.reshape(bb.emit(R.matmul(x, w)), (1, 32, 4, 16)))
        return R.permute_dims(heads, [0, 2, 1, 3])

    check(
        [f(32, 48), f(48, 64)],
        body,
        lambda x, w: (x @ w).reshape(1, 32, 4, 16).transpose(0, 2, 1, 3),
    )


def test_integer_matmul() -> None:
    specs = [((8, 16), "int32"), ((16, 24), "int32")]
    check(specs, lambda bb, x, w: R.matmul(x, w), lambda x, w: x @ w)


def normalised(x: np.ndarray, gain: np.ndarray, shift: np.ndarray) -> np.ndarray:
    x = x.astype("float64")
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * gain + shift


ROWS = {
    "softmax": ([f(4, 32, 128)], lambda bb, x: R.nn.softmax(x), lambda x: scipy.special.softmax(x, -1)),
    "softmax of an odd row": ([f(9, 37)], lambda bb, x: R.nn.softmax(x), lambda x: scipy.special.softmax(x, -1)),
    "softmax of one row": ([f(1, 1000)], lambda bb, x: R.nn.softmax(x), lambda x: scipy.special.softmax(x, -1)),
    "softmax of odd rows": ([f(4, 1001)], lambda bb, x: R.nn.softmax(x), lambda x: scipy.special.softmax(x, -1)),
    "softmax of one odd row": ([f(1, 1001)], lambda bb, x: R.nn.softmax(x), lambda x: scipy.special.softmax(x, -1)),
    "softmax of prime rows": ([f(2, 997)], lambda bb, x: R.nn.softmax(x), lambda x: scipy.special.softmax(x, -1)),
    "softmax over channels": (
        [f(2, 10, 4, 4)],
        lambda bb, x: R.nn.softmax(x, axis=1),
        lambda x: scipy.special.softmax(x, 1),
    ),
    "log softmax": ([f(8, 100)], lambda bb, x: R.nn.log_softmax(x), lambda x: scipy.special.log_softmax(x, -1)),
    "layer norm": (
        [f(2, 16, 768), f(768), f(768)],
        lambda bb, x, g, b: R.nn.layer_norm(x, g, b, axes=[-1]),
        normalised,
    ),
    "layer norm of an odd row": (
        [f(5, 77), f(77), f(77)],
        lambda bb, x, g, b: R.nn.layer_norm(x, g, b, axes=[-1]),
        normalised,
    ),
    "residual and layer norm": (
        [f(16, 64), f(16, 64), f(64), f(64)],
        lambda bb, x, r, g, b: R.nn.layer_norm(bb.emit(R.add(x, r)), g, b, axes=[-1]),
        lambda x, r, g, b: normalised(x + r, g, b),
    ),
    "global mean": (
        [f(1, 64, 7, 7)],
        lambda bb, x: R.mean(x, axis=[2, 3], keepdims=True),
        lambda x: x.mean((2, 3), keepdims=True),
    ),
    "global mean of odd images": (
        [f(1, 16, 14, 14)],
        lambda bb, x: R.mean(x, axis=[2, 3], keepdims=True),
        lambda x: x.mean((2, 3), keepdims=True),
    ),
    "mean over the first axis": ([f(50, 64)], lambda bb, x: R.mean(x, axis=[0]), lambda x: x.mean(0)),
    "variance": ([f(8, 96)], lambda bb, x: R.variance(x, axis=[1]), lambda x: x.var(1)),
    "sum of all": ([f(8, 96)], lambda bb, x: R.sum(x), lambda x: x.astype("float64").sum()),
    "largest": ([f(8, 96)], lambda bb, x: R.max(x, axis=[1]), lambda x: x.max(1)),
    "sum of a relu": (
        [f(64, 96)],
        lambda bb, x: R.sum(bb.emit(R.nn.relu(x)), axis=[1]),
        lambda x: np.maximum(x, 0).sum(1),
    ),
    "argmax": ([f(8, 100)], lambda bb, x: R.argmax(x, axis=1), lambda x: x.argmax(1)),
    "cumulative sum": ([f(8, 20)], lambda bb, x: R.cumsum(x, axis=1), lambda x: np.cumsum(x, 1)),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows(name: str) -> None:
    check(*ROWS[name])


@pytest.mark.parametrize("rows", [1, 3])
def test_long_rows_that_no_vector_divides_keep_their_digits(rows: int) -> None:
    """In one chain, float32 loses the fourth digit of the sum of 50,257 equal numbers."""
    x = np.full((rows, 50_257), 0.1, "float32")
    (total,) = run(partition([f(*x.shape)], lambda bb, x: R.sum(x, axis=[1])), [x])
    np.testing.assert_allclose(total, x.astype("float64").sum(1), rtol=5e-5)


def window(x: np.ndarray, size: int, stride: int, pad: int, value: float, combine: Callable[..., Any]) -> np.ndarray:
    x = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)], constant_values=value)
    out = (x.shape[2] - size) // stride + 1
    taps = [
        x[:, :, i : i + stride * (out - 1) + 1 : stride, j : j + stride * (out - 1) + 1 : stride]
        for i, j in np.ndindex(size, size)
    ]
    return np.asarray(combine(np.stack(taps), axis=0))


POOLS = {
    "max 3x3 stride 2": (
        [f(1, 16, 28, 28)],
        lambda bb, x: R.nn.max_pool2d(x, (3, 3), strides=(2, 2), padding=(1, 1)),
        lambda x: window(x, 3, 2, 1, -np.inf, np.max),
    ),
    "max 2x2": (
        [f(1, 16, 28, 28)],
        lambda bb, x: R.nn.max_pool2d(x, (2, 2), strides=(2, 2)),
        lambda x: window(x, 2, 2, 0, 0, np.max),
    ),
    "average 3x3": (
        [f(1, 16, 32, 32)],
        lambda bb, x: R.nn.avg_pool2d(x, (3, 3), padding=(1, 1), count_include_pad=True),
        lambda x: window(x, 3, 1, 1, 0, np.mean),
    ),
    "average of all": (
        [f(1, 64, 7, 7)],
        lambda bb, x: R.nn.avg_pool2d(x, (7, 7)),
        lambda x: x.mean((2, 3), keepdims=True),
    ),
}


@pytest.mark.parametrize("name", POOLS)
def test_pooling(name: str) -> None:
    check(*POOLS[name])


def scattered(x: np.ndarray, index: np.ndarray, update: np.ndarray) -> np.ndarray:
    result = x.copy()
    for (i, j), row in np.ndenumerate(index):
        result[row, j] += update[i, j]
    return result


ELEMENTS = {
    "add and relu": (
        [f(1, 64, 28, 28), f(1, 64, 1, 1)],
        lambda bb, x, b: R.nn.relu(bb.emit(R.add(x, b))),
        lambda x, b: np.maximum(x + b, 0),
    ),
    "of odd size": ([f(3, 5, 7)], lambda bb, x: R.multiply(x, x), lambda x: x * x),
    "exponential": ([f(2000)], lambda bb, x: R.exp(x), np.exp),
    "hyperbolic tangent": ([f(2000)], lambda bb, x: R.tanh(x), np.tanh),
    "error function": ([f(2000)], lambda bb, x: R.erf(x), scipy.special.erf),
    "sigmoid": ([f(2000)], lambda bb, x: R.sigmoid(x), scipy.special.expit),
    "third power": ([f(2000)], lambda bb, x: R.power(x, relax.const(3.0, "float32")), lambda x: x**3),
    "scalar": ([f()], lambda bb, x: R.exp(x), np.exp),
    "scalar and array": ([f(), f(40)], lambda bb, x, y: R.add(x, y), lambda x, y: x + y),
    "one element": ([f(1, 1)], lambda bb, x: R.nn.relu(x), lambda x: np.maximum(x, 0)),
    "long integers": (
        [((40, 3), "int64"), ((3,), "int64")],
        lambda bb, x, y: R.floor_divide(
            R.multiply(x, relax.const(7, "int64")), bb.emit(R.add(y, relax.const(1, "int64")))
        ),
        lambda x, y: (x * 7) // (y + 1),
    ),
    "choice": (
        [((6, 40), "bool"), f(6, 40), f(1, 40)],
        lambda bb, c, x, y: R.where(c, x, y),
        lambda c, x, y: np.where(c, x, y),
    ),
    "logic": (
        [((64,), "bool"), f(64)],
        lambda bb, c, x: R.logical_and(c, bb.emit(R.less(x, relax.const(0.0, "float32")))),
        lambda c, x: c & (x < 0),
    ),
    "embedding": ([f(50, 24), ((2, 9), "int64")], lambda bb, t, i: R.take(t, i, axis=0), lambda t, i: t[i]),
    "concatenation and relu": (
        [f(1, 8, 6, 6), f(1, 5, 6, 6)],
        lambda bb, x, y: R.nn.relu(bb.emit(R.concat([x, y], axis=1))),
        lambda x, y: np.maximum(np.concatenate([x, y], 1), 0),
    ),
    "split": (
        [f(4, 48)],
        lambda bb, x: R.add(
            bb.emit(relax.TupleGetItem(s := bb.emit(R.split(x, 2, axis=1)), 0)), bb.emit(relax.TupleGetItem(s, 1))
        ),
        lambda x: x[:, :24] + x[:, 24:],
    ),
    "padding and scale": (
        [f(1, 4, 8, 8)],
        lambda bb, x: R.multiply(bb.emit(R.nn.pad(x, (0, 0, 0, 0, 1, 1, 2, 0))), relax.const(2.0, "float32")),
        lambda x: 2 * np.pad(x, [(0, 0), (0, 0), (1, 1), (2, 0)]),
    ),
    "strided slice": (
        [f(1, 4, 9, 9)],
        lambda bb, x: R.nn.relu(bb.emit(R.strided_slice(x, [2, 3], [0, 1], [9, 9], [2, 2]))),
        lambda x: np.maximum(x[:, :, 0:9:2, 1:9:2], 0),
    ),
    "transposition": (
        [f(1, 32, 4, 16)],
        lambda bb, x: R.permute_dims(x, [0, 2, 1, 3]),
        lambda x: x.transpose(0, 2, 1, 3),
    ),
    "matrix transposition": ([f(40, 50)], lambda bb, x: R.permute_dims(x), lambda x: x.T),
    "two outputs": (
        [f(40, 50)],
        lambda bb, x: relax.Tuple([bb.emit(R.nn.relu(x)), bb.emit(R.negative(x))]),
        lambda x: (np.maximum(x, 0), -x),
    ),
    "row sums and the rows": (
        [f(40, 64)],
        lambda bb, x: relax.Tuple([y := bb.emit(R.nn.relu(x)), bb.emit(R.sum(y, axis=[1]))]),
        lambda x: (np.maximum(x, 0), np.maximum(x, 0).sum(1)),
    ),
    "sorting": ([f(8, 20)], lambda bb, x: R.sort(x, axis=1), lambda x: np.sort(x, 1)),
    "scatter": (
        [f(6, 4), ((3, 4), "int64"), f(3, 4)],
        lambda bb, x, i, u: R.scatter_elements(x, i, u, axis=0, reduction="add"),
        scattered,
    ),
}


@pytest.mark.parametrize("name", ELEMENTS)
def test_elements(name: str) -> None:
    check(*ELEMENTS[name])


def test_constant_without_inputs() -> None:
    check([], lambda bb: R.full((4, 4), relax.const(2.5, "float32"), "float32"), lambda: np.full((4, 4), 2.5))


def test_one_thread_gives_the_same() -> None:
    specs = [f(1, 16, 14, 14), f(24, 16, 3, 3)]
    module = partition(specs, lambda bb, x, w: R.nn.conv2d(x, w, padding=(1, 1)))
    arrays = random_arrays(specs)
    np.testing.assert_array_equal(run(module, arrays, threads=1)[0], run(module, arrays, threads=2)[0])


@pytest.mark.parametrize("name", ["exp", "tanh", "erf", "sigmoid"])
def test_extreme_arguments(name: str) -> None:
    """Infinities, not-a-number, overflow and underflow come out as from the C library."""
    x = np.array([np.inf, -np.inf, np.nan, 0.0, 88.0, 89.5, -87.0, -103.0, -105.0, 1e30, -1e30, 1e-30], "float32")
    operator = {"exp": R.exp, "tanh": R.tanh, "erf": R.erf, "sigmoid": R.sigmoid}[name]
    function = {"exp": np.exp, "tanh": np.tanh, "erf": scipy.special.erf, "sigmoid": scipy.special.expit}[name]
    with np.errstate(over="ignore"):
        expected = function(x.astype("float64")).astype("float32")
    actual = run(partition([f(12)], lambda bb, v: operator(v)), [x])[0]
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-37)
