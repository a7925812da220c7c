"""`onednn-bf16` and `onednn-int8`: what they take, that it is near what float32 gives, and what ranges do."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from collage.annotations.precision import BF16, FLOAT32, INT8, UNKNOWN, Range, uint8_steps
from collage.backends.onednn import narrow
from collage.backends.onednn.backend import OneDNNBackend
from collage.backends.onednn.bf16 import OneDNNBf16Backend
from collage.backends.onednn.int8 import OneDNNInt8Backend
from collage.backends.onednn.narrow import NarrowOneDNNBackend
from collage.backends.resolve import available_backends
from collage.errors import CodegenError, CompiledModelError
from collage.runtime import engines
from collage.runtime.onednn import engine
from tests.collage.backends.one_partition import (
    Body,
    Shapes,
    as_one_partition,
    check_exported,
    function_of,
    labels,
    network,
)
from tests.collage.backends.test_onednn import ACTIVATIONS, block, dense, drawn, projection

nn, op = relax.op.nn, relax.op
BF16_BACKEND, INT8_BACKEND = OneDNNBf16Backend(), OneDNNInt8Backend()
FLOAT32_BACKEND = OneDNNBackend()
#: Backend -> largest relative error (L2) of data and weights that are spread evenly.
TOLERANCES: dict[NarrowOneDNNBackend, float] = {BF16_BACKEND: 0.008, INT8_BACKEND: 0.025}
BOTH = pytest.mark.parametrize("backend", TOLERANCES, ids=lambda b: b.precision)
SHAPES = [(1, 32, 28, 28), (1, 48, 28, 28)]


def computed(
    backend: OneDNNBackend, arrays: list[np.ndarray], body: Body, threads: int = 2, ends: Range = UNKNOWN
) -> np.ndarray:
    """What the engine gives for a network of one partition; nothing where it is not offered."""
    if reason := backend.availability().reason:
        pytest.skip(reason)
    function = function_of(as_one_partition(backend, [array.shape for array in arrays], body, ends))
    run = engines.create("onednn", backend.engine_blob(function), {"threads": threads})
    result = tvm.runtime.empty([int(extent) for extent in function.ret_ty.shape.values], "float32")
    order = [int(param.name[1:]) for param in function.params]  # that of their first use
    run(*(tvm.runtime.tensor(arrays[i]) for i in order), result)
    values: np.ndarray = result.numpy()
    return values


def near(backend: NarrowOneDNNBackend, shapes: Shapes, body: Body, threads: int = 2) -> None:
    """Holds a result against that of float32, which is held against the definition elsewhere."""
    rng = np.random.default_rng(1)
    arrays = [rng.uniform(-2, 2, shape).astype(np.float32) for shape in shapes]
    expected = computed(FLOAT32_BACKEND, arrays, body)
    error = computed(backend, arrays, body, threads, (-2.0, 2.0)) - expected
    assert np.linalg.norm(error) < TOLERANCES[backend] * np.linalg.norm(expected)
    assert np.abs(error).max() < 10 * TOLERANCES[backend] * np.abs(expected).max()


@BOTH
@pytest.mark.parametrize("seed", range(24))
def test_drawn_images_give_nearly_what_the_definition_gives(backend: NarrowOneDNNBackend, seed: int) -> None:
    near(backend, *drawn(seed))


@BOTH
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (1, 2), (3, 1)])
def test_activations_follow_a_residual(backend: NarrowOneDNNBackend, name: str, kernel: int, stride: int) -> None:
    def body(emit: Any, weight: Any, x: Any, y: Any) -> Any:
        value = nn.conv2d(x, weight(40, 20, kernel, kernel), strides=(stride, stride), padding=(kernel // 2,) * 2)
        return ACTIVATIONS[name](emit, op.add(emit(op.add(emit(value), weight(1, 40, 1, 1))), y))

    near(backend, [(2, 20, 19, 19), (2, 40, (18 // stride) + 1, (18 // stride) + 1)], body)


@BOTH
@pytest.mark.parametrize("kernel", [(1, 1, 1), (3, 3, 3)])
def test_volumes(backend: NarrowOneDNNBackend, kernel: tuple[int, ...]) -> None:
    def body(emit: Any, weight: Any, x: Any) -> Any:
        return op.add(emit(nn.conv3d(x, weight(24, 20, *kernel), strides=2)), weight(24, 1, 1, 1))

    near(backend, [(2, 20, 5, 12, 9)], body)


@BOTH
@pytest.mark.parametrize("kernel", [1, 3])
def test_sequences(backend: NarrowOneDNNBackend, kernel: int) -> None:
    near(backend, [(2, 20, 31)], lambda emit, weight, x: nn.conv1d(x, weight(24, 20, kernel), padding=(kernel // 2,)))


@BOTH
@pytest.mark.parametrize(("channels", "filters"), [(32, 48), (512, 80)])
def test_transposed_convolutions(backend: NarrowOneDNNBackend, channels: int, filters: int) -> None:
    def body(emit: Any, weight: Any, x: Any) -> Any:
        value = nn.conv2d_transpose(x, weight(channels, filters, 4, 4), strides=(2, 2), padding=(1, 1))
        return nn.relu(emit(op.add(emit(value), weight(1, filters, 1, 1))))

    near(backend, [(2, channels, 7, 9)], body)


@BOTH
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(("rows", "columns"), [(1, 40), (7, 100), (64, 24)])
@pytest.mark.parametrize("parts", [("scale",), ("bias", "gelu"), ("bias", "residual", "relu"), ("gelu by tanh",)])
def test_linear_layers(
    backend: NarrowOneDNNBackend, rows: int, columns: int, parts: tuple[str, ...], threads: int
) -> None:
    shapes = [(1, rows, 33), *([(1, rows, columns)] if "residual" in parts else [])]
    near(backend, shapes, dense(columns, *parts), threads)


def values(emit: Any, weight: Any, p: Any, v: Any) -> Any:
    """The sum of values of attention, back in the order of the network."""
    product = emit(op.matmul(p, emit(op.permute_dims(v, (0, 2, 1, 3)))))
    return op.permute_dims(product, (0, 2, 1, 3))


def scores(emit: Any, weight: Any, q: Any, k: Any) -> Any:
    """Queries by transposed keys."""
    queries, keys = emit(op.permute_dims(q, (0, 2, 1, 3))), emit(op.permute_dims(k, (0, 2, 3, 1)))
    return op.matmul(queries, keys)


def test_products_of_two_data_are_for_bfloat16() -> None:
    near(BF16_BACKEND, [(2, 16, 4, 8), (2, 16, 4, 8)], scores)
    near(BF16_BACKEND, [(2, 4, 16, 16), (2, 16, 4, 8)], values)
    assert labels(INT8_BACKEND, network("float32", [(1, 4, 16, 16), (1, 16, 4, 8)], values)) == []
    constant_data = network("float32", [(8, 24)], lambda emit, weight, x: op.matmul(weight(5, 8), x))
    assert labels(INT8_BACKEND, constant_data) == []


def test_a_constant_batch_has_weights_of_each_matrix() -> None:
    for backend in TOLERANCES:
        near(backend, [(3, 7, 20)], lambda emit, weight, x: op.matmul(x, weight(3, 20, 24)))


@BOTH
@pytest.mark.parametrize("body", [block, projection])
def test_any_number_of_threads_gives_the_same(backend: NarrowOneDNNBackend, body: Body) -> None:
    rng = np.random.default_rng(1)
    arrays = [rng.uniform(-2, 2, shape).astype(np.float32) for shape in SHAPES]
    one, many = (computed(backend, arrays, body, threads) for threads in (1, 16))
    assert np.abs(one - many).max() < 1e-5 * np.abs(one).max()


def test_an_exported_model_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    check_exported(INT8_BACKEND, SHAPES, block, tmp_path)


def convolution(kernel: int) -> Body:
    return lambda emit, weight, x: nn.conv2d(x, weight(24, 20, kernel, kernel), padding=(kernel // 2,) * 2)


def product(emit: Any, weight: Any, x: Any) -> Any:
    return op.matmul(x, weight(20, 24))


RANGED: dict[str, tuple[tuple[int, ...], Body]] = {
    "convolution": ((1, 20, 9, 9), convolution(3)),
    "of one tap": ((1, 20, 9, 9), convolution(1)),
    "product": ((9, 20), product),
}


@pytest.mark.parametrize("ends", [(0.0, 1.0), (-1.0, 0.5), (0.25, 1.0), (-3.0, -0.5)])
@pytest.mark.parametrize("name", RANGED)
def test_what_is_beyond_the_range_is_saturated(name: str, ends: Range) -> None:
    """And zero, which pads images, is always within."""
    shape, body = RANGED[name]
    data = np.random.default_rng(1).uniform(-4, 4, shape).astype(np.float32)
    data.reshape(-1)[:3] = np.inf, -np.inf, 1e30
    low, high = min(ends[0], 0.0), max(ends[1], 0.0)
    result = computed(INT8_BACKEND, [data], body, ends=ends)
    expected = computed(FLOAT32_BACKEND, [np.clip(data, low, high)], body)
    assert np.abs(result - expected).max() < 0.03 * np.abs(expected).max()


def test_a_range_that_fits_gives_smaller_errors() -> None:
    shape, body = RANGED["convolution"]
    data = np.random.default_rng(1).uniform(-0.5, 0.5, shape).astype(np.float32)
    exact = computed(FLOAT32_BACKEND, [data], body)
    fitting, default = (
        np.abs(computed(INT8_BACKEND, [data], body, ends=ends) - exact).max() for ends in ((-0.5, 0.5), UNKNOWN)
    )
    assert fitting < default / 2


@BOTH
@pytest.mark.parametrize("kernel", [1, 3])
def test_weights_of_zero_give_the_bias(backend: NarrowOneDNNBackend, kernel: int) -> None:
    def body(emit: Any, weight: Any, x: Any) -> Any:
        zeros = relax.const(np.zeros((24, 20, kernel, kernel), "float32"))
        return op.add(emit(nn.conv2d(x, zeros)), weight(1, 24, 1, 1))

    result = computed(backend, [np.full((1, 20, 9, 9), 3.0, "float32")], body)
    assert np.array_equal(result, np.broadcast_to(result[:, :, :1, :1], result.shape)) and result.std() > 0.1


def test_a_value_that_is_no_number_stays_none_in_bfloat16() -> None:
    data = np.ones((9, 20), "float32")
    data[2, 3] = np.nan
    result = computed(BF16_BACKEND, [data], product)
    assert np.isnan(result[2]).all() and np.isfinite(np.delete(result, 2, axis=0)).all()


def test_steps_hold_zero_and_are_never_nothing() -> None:
    assert uint8_steps((0.0, 0.0)) == uint8_steps((-4.0, 4.0))
    assert uint8_steps((0.0, 255.0)) == (1.0, 0) and uint8_steps((-255.0, -3.0)) == (1.0, 255)
    assert uint8_steps((0.0, 1e-30))[0] > 0
    with pytest.raises(ValueError, match="not finite in calibration"):
        uint8_steps((0.0, float("inf")))
    with pytest.raises(CodegenError, match="not finite in calibration"):
        computed(INT8_BACKEND, [np.ones((9, 20), "float32")], product, ends=(0.0, float("inf")))


def test_small_weights_and_data_keep_their_digits() -> None:
    data = np.random.default_rng(1).uniform(-1e-6, 1e-6, (9, 20)).astype(np.float32)

    def body(emit: Any, weight: Any, x: Any) -> Any:
        return op.matmul(x, relax.const(np.random.default_rng(2).uniform(-1e-9, 1e-9, (20, 24)).astype(np.float32)))

    exact = computed(FLOAT32_BACKEND, [data], body)
    assert np.linalg.norm(computed(INT8_BACKEND, [data], body, ends=(-1e-6, 1e-6)) - exact) < 0.02 * np.linalg.norm(
        exact
    )


def test_sums_of_more_terms_than_32_bits_hold_are_refused() -> None:
    module = as_one_partition(INT8_BACKEND, [(1, 70000)], lambda emit, weight, x: op.matmul(x, weight(70000, 16)))
    with pytest.raises(CodegenError, match="terms may not be of 32 bits"):
        INT8_BACKEND.engine_blob(function_of(module))


def test_a_processor_without_the_instructions_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrow, "describe_device", lambda _: SimpleNamespace(features=("avx2",)))
    reason = "the processor has no instructions for bf16"
    assert BF16_BACKEND.availability().reason == reason and not INT8_BACKEND.availability().available


def test_they_are_offered_where_their_precision_is_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    both = SimpleNamespace(features=("avx512_bf16", "avx512_vnni"))
    monkeypatch.setattr(narrow, "describe_device", lambda _: both)

    def offered(*precisions: str) -> set[str]:
        return {backend.name for backend in available_backends("cpu", precisions)}

    assert {"onednn-bf16", "onednn-int8"}.isdisjoint(offered(FLOAT32))
    assert "onednn-bf16" in offered(FLOAT32, BF16) and "onednn-int8" in offered(FLOAT32, INT8)


def test_what_the_engine_does_not_take_is_refused_by_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as what oneDNN has its reference implementation for only."""

    def refuse(*_: Any) -> None:
        raise CompiledModelError("oneDNN has its reference implementation only")

    monkeypatch.setattr(type(engine.ENGINE), "create", refuse)
    with pytest.raises(CodegenError, match=r"onednn.conv_add_add_act: oneDNN has its reference"):
        BF16_BACKEND.engine_blob(function_of(as_one_partition(BF16_BACKEND, SHAPES, block)))


@pytest.mark.skipif(not BF16_BACKEND.availability().available, reason="no instructions for bfloat16")
def test_blobs_say_nothing_of_ranges_unless_in_eight_bits() -> None:
    blobs = {
        backend: [backend.engine_blob(function_of(as_one_partition(backend, SHAPES, block, ends))) for ends in RANGES]
        for backend in TOLERANCES
    }
    assert blobs[BF16_BACKEND][0] == blobs[BF16_BACKEND][1] and blobs[INT8_BACKEND][0] != blobs[INT8_BACKEND][1]


RANGES: tuple[Range, Range] = ((-1.0, 1.0), (0.0, 5.0))
