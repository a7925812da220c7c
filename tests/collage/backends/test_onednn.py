"""The `onednn` backend: what it takes, and that it computes it on any number of threads, here and where deployed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from collage.backends.onednn.backend import OneDNNBackend
from collage.compile.build import compile_partitioned
from collage.errors import CodegenError, CompiledModelError
from collage.runtime import engines
from collage.runtime.onednn import engine
from collage.runtime.threads import configure_threads
from collage.testing import fresh
from tests.collage.backends.one_partition import (
    Body,
    Shapes,
    as_one_partition,
    check,
    check_exported,
    function_of,
    labels,
    network,
)

nn, op = relax.op.nn, relax.op
BACKEND = OneDNNBackend()

ACTIVATIONS: dict[str, Any] = {
    "none": lambda emit, v: v,
    "relu": lambda emit, v: nn.relu(emit(v)),
    "clip": lambda emit, v: op.clip(emit(v), -0.5, 6.0),
    "leaky relu": lambda emit, v: nn.leakyrelu(emit(v), 0.2),
    "sigmoid": lambda emit, v: op.sigmoid(emit(v)),
    "tanh": lambda emit, v: op.tanh(emit(v)),
    "silu": lambda emit, v: nn.silu(emit(v)),
    "gelu": lambda emit, v: nn.gelu(emit(v)),
    "gelu by tanh": lambda emit, v: nn.gelu_tanh(emit(v)),
}


def drawn(seed: int) -> tuple[Shapes, Body, int]:
    """A convolution and a number of threads: kernels of one tap and of many, groups, batches, channels that fill no
    vector, in pieces of every kind.
    """
    rng = random.Random(seed)
    batch, groups = rng.choice((1, 1, 1, 3, 9)), rng.choice((1, 1, 1, 2, 8))
    channels, filters = groups * rng.choice((1, 3, 16, 20)), groups * rng.choice((1, 5, 16, 40))
    kernel = (1, 1) if seed % 3 == 0 else (rng.choice((1, 2, 3)), rng.choice((1, 3, 5)))
    height, width = rng.choice((7, 14, 30)), rng.choice((8, 17, 29))
    strides, dilation = (rng.choice((1, 1, 2)), rng.choice((1, 1, 2, 3))), (rng.choice((1, 1, 2)), 1)
    padding = [0] * 4 if seed % 2 else [rng.randrange(3) for _ in range(4)]
    extents = [
        (extent + padding[i] + padding[i + 2] - dilation[i] * (kernel[i] - 1) - 1) // strides[i] + 1
        for i, extent in enumerate((height, width))
    ]
    add_bias, add_residual = rng.random() < 0.7, rng.random() < 0.5
    activation = rng.choice(list(ACTIVATIONS))

    def body(emit: Any, weight: Any, x: Any, y: Any = None) -> Any:
        value = nn.conv2d(
            x,
            weight(filters, channels // groups, *kernel),
            strides=strides,
            padding=padding,
            dilation=dilation,
            groups=groups,
        )
        if add_bias:
            value = op.add(emit(value), weight(1, filters, 1, 1))
        if y is not None:
            value = op.add(y, emit(value))
        return ACTIVATIONS[activation](emit, value)

    images = [(batch, channels, height, width), *([(batch, filters, *extents)] if add_residual else [])]
    return images, body, rng.choice((1, 2, 5))


@pytest.mark.parametrize("seed", range(24))
def test_drawn_images_give_what_the_definition_gives(seed: int) -> None:
    check(BACKEND, *drawn(seed))


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("kernel", [1, 3])
def test_activations(name: str, kernel: int) -> None:
    def body(emit: Any, weight: Any, x: Any) -> Any:
        value = nn.conv2d(x, weight(24, 20, kernel, kernel), padding=(kernel // 2, kernel // 2))
        return ACTIVATIONS[name](emit, op.add(emit(value), weight(1, 24, 1, 1)))

    check(BACKEND, [(1, 20, 9, 9)], body)


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("kernel", [(1, 1, 1), (3, 3, 3), (1, 2, 3)])
@pytest.mark.parametrize("stride", [1, 2])
def test_volumes(batch: int, kernel: tuple[int, ...], stride: int) -> None:
    def body(emit: Any, weight: Any, x: Any) -> Any:
        return op.add(emit(nn.conv3d(x, weight(24, 20, *kernel), strides=stride)), weight(24, 1, 1, 1))

    check(BACKEND, [(batch, 20, 5, 12, 9)], body)


@pytest.mark.parametrize("kernel", [1, 3])
def test_sequences(kernel: int) -> None:
    check(BACKEND, [(2, 20, 31)], lambda emit, weight, x: nn.conv1d(x, weight(24, 20, kernel), padding=(kernel // 2,)))


@pytest.mark.parametrize(
    ("kernel", "stride", "groups", "more"), [(4, 2, 1, 0), (3, 2, 1, 1), (3, 1, 4, 0), (2, 2, 8, 0)]
)
@pytest.mark.parametrize("batch", [1, 3])
def test_transposed_convolutions(batch: int, kernel: int, stride: int, groups: int, more: int) -> None:
    def body(emit: Any, weight: Any, x: Any) -> Any:
        weights, padding = weight(32, 48 // groups, kernel, kernel), (kernel // 2 - 1,) * 2 if kernel > 2 else (0, 0)
        value = nn.conv2d_transpose(
            x, weights, strides=(stride, stride), padding=padding, output_padding=(more, more), groups=groups
        )
        return nn.relu(emit(op.add(emit(value), weight(1, 48, 1, 1))))

    check(BACKEND, [(batch, 32, 7, 9)], body)


@pytest.mark.parametrize(("channels", "image"), [(256, 16), (512, 4), (768, 8)])
@pytest.mark.parametrize("parts", [("bias",), ("relu",), ("bias", "gelu"), ("bias", "add", "relu")], ids="-".join)
def test_epilogues_of_transposed_convolutions_of_many_channels(
    channels: int, image: int, parts: tuple[str, ...]
) -> None:
    """oneDNN sums these up in several parts, and must not finish each of them."""

    def body(emit: Any, weight: Any, x: Any, *rest: Any) -> Any:
        value = nn.conv2d_transpose(x, weight(channels, 80, 4, 4), strides=(2, 2), padding=(1, 1))
        for part in parts:
            value = emit(value)
            if part == "bias":
                value = op.add(value, weight(1, 80, 1, 1))
            else:
                value = op.add(value, *rest) if part == "add" else ACTIVATIONS[part](emit, value)
        return value

    residual = [(2, 80, 2 * image, 2 * image)] if "add" in parts else []
    check(BACKEND, [(2, channels, image, image), *residual], body)


def dense(columns: int, *parts: str) -> Body:
    """A linear layer with parts of an epilogue."""

    def body(emit: Any, weight: Any, x: Any, *rest: Any) -> Any:
        rows = int(x.ty.shape[-1])
        value = op.matmul(x, weight(rows, columns))
        for part in parts:
            value = emit(value)
            value = PARTS[part](emit, weight, value, columns, rest)
        return value

    return body


def _scalar(x: Any, value: float) -> Any:
    return relax.const(value, str(x.ty.dtype))


def _gelu_by_erf(emit: Any, _weight: Any, x: Any, *_: Any) -> Any:
    gate = emit(op.add(emit(op.erf(emit(op.multiply(x, _scalar(x, 0.70710678))))), _scalar(x, 1.0)))
    return op.multiply(emit(op.multiply(x, gate)), _scalar(x, 0.5))


def _gelu_by_tanh(emit: Any, _weight: Any, x: Any, *_: Any) -> Any:
    cube = emit(op.multiply(emit(op.power(x, _scalar(x, 3.0))), _scalar(x, 0.044715)))
    inner = emit(op.tanh(emit(op.multiply(emit(op.add(x, cube)), _scalar(x, 0.7978845608)))))
    return op.multiply(emit(op.multiply(x, _scalar(x, 0.5))), emit(op.add(inner, _scalar(x, 1.0))))


PARTS: dict[str, Any] = {
    "bias": lambda emit, weight, x, columns, rest: op.add(x, weight(columns)),
    "residual": lambda emit, weight, x, columns, rest: op.add(x, rest[0]),
    "relu": lambda emit, weight, x, columns, rest: nn.relu(x),
    "gelu": _gelu_by_erf,
    "gelu by tanh": _gelu_by_tanh,
    "the operator gelu": lambda emit, weight, x, columns, rest: nn.gelu(x),
    "scale": lambda emit, weight, x, columns, rest: op.multiply(x, _scalar(x, 0.125)),
}


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(("rows", "columns"), [(1, 40), (7, 100), (64, 24), (3, 1000)])
@pytest.mark.parametrize(
    "parts", [(), ("scale",), ("bias", "gelu"), ("bias", "residual", "relu"), ("gelu by tanh",), ("the operator gelu",)]
)
def test_linear_layers(rows: int, columns: int, parts: tuple[str, ...], threads: int) -> None:
    shapes = [(1, rows, 33), *([(1, rows, columns)] if "residual" in parts else [])]
    check(BACKEND, shapes, dense(columns, *parts), threads)


def test_a_residual_and_a_left_hand_side_may_be_constants() -> None:
    check(BACKEND, [(5, 8)], lambda emit, weight, x: op.add(emit(op.matmul(x, weight(8, 24))), weight(5, 24)))
    check(BACKEND, [(8, 24)], lambda emit, weight, x: op.matmul(weight(5, 8), x))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("batch", [1, 2])
def test_attention_over_heads_that_are_permuted(batch: int, threads: int) -> None:
    """Queries by transposed keys, and the sum of values back in the order of the network: nothing is moved."""
    shapes = [(batch, 16, 4, 8), (batch, 16, 4, 8)]

    def scores(emit: Any, weight: Any, q: Any, k: Any) -> Any:
        queries, keys = emit(op.permute_dims(q, (0, 2, 1, 3))), emit(op.permute_dims(k, (0, 2, 3, 1)))
        return op.matmul(queries, keys)

    def values(emit: Any, weight: Any, p: Any, v: Any) -> Any:
        product = emit(op.matmul(p, emit(op.permute_dims(v, (0, 2, 1, 3)))))
        return op.permute_dims(product, (0, 2, 1, 3))

    check(BACKEND, shapes, scores, threads)
    check(BACKEND, [(batch, 4, 16, 16), (batch, 16, 4, 8)], values, threads)


@pytest.mark.parametrize("threads", [1, 2])
def test_queries_and_keys_that_are_slices_of_one_tensor(threads: int) -> None:
    """Nothing is copied for the slices either."""

    def scores(emit: Any, weight: Any, x: Any) -> Any:
        q, k = (emit(op.strided_slice(x, [2], [begin], [begin + 4])) for begin in (0, 4))
        return op.matmul(emit(op.permute_dims(q, (0, 2, 1, 3))), emit(op.permute_dims(k, (0, 2, 3, 1))))

    def columns(emit: Any, weight: Any, x: Any) -> Any:
        return op.matmul(emit(op.strided_slice(x, [1], [-24], [40])), weight(24, 56))

    check(BACKEND, [(2, 16, 12, 8)], scores, threads)
    check(BACKEND, [(33, 40)], columns, threads)


def block(emit: Any, weight: Any, x: Any, y: Any) -> Any:
    """A convolution with bias, residual and relu."""
    value = emit(op.add(emit(nn.conv2d(x, weight(48, 32, 3, 3), padding=(1, 1))), weight(1, 48, 1, 1)))
    return nn.relu(emit(op.add(value, y)))


def projection(emit: Any, weight: Any, x: Any, y: Any) -> Any:
    """The same, of one tap."""
    value = emit(op.add(emit(nn.conv2d(x, weight(48, 32, 1, 1))), weight(1, 48, 1, 1)))
    return nn.relu(emit(op.add(value, y)))


SHAPES = [(1, 32, 28, 28), (1, 48, 28, 28)]


@pytest.mark.parametrize("threads", [1, 2, 5, 16])
@pytest.mark.parametrize("body", [block, projection])
def test_any_number_of_threads(threads: int, body: Body) -> None:
    """More than the pool has, too: a model may run where there are fewer than it was compiled for."""
    configure_threads(2)
    check(BACKEND, SHAPES, body, threads)


def test_two_partitions_share_their_workspace() -> None:
    """The second one needs more of it than the first."""
    engines.register()
    rng = np.random.default_rng(0)

    def machine(channels: int) -> Any:
        shapes = [(1, channels, 28, 28)]
        module = as_one_partition(BACKEND, shapes, lambda emit, weight, x: nn.conv2d(x, weight(48, channels, 3, 3)))
        return relax.VirtualMachine(compile_partitioned(module, [BACKEND], 2), tvm.cpu())["main"]

    small, large = machine(8), machine(64)
    images = [tvm.runtime.tensor(rng.uniform(-1, 1, (1, channels, 28, 28)).astype("f")) for channels in (8, 64)]
    first = small(images[0]).numpy()
    large(images[1])
    np.testing.assert_array_equal(small(images[0]).numpy(), first)


@pytest.mark.parametrize("body", [block, projection])
def test_an_exported_model_runs_in_a_process_of_its_own(body: Body, tmp_path: Path) -> None:
    check_exported(BACKEND, SHAPES, body, tmp_path)


def test_openmp_makes_no_threads() -> None:
    """Those that the process has are TVM's; and what the caller had asked of OpenMP stays."""
    printed = fresh.run("tests.collage.backends.onednn_threads", [])
    before, after, kept = map(int, printed.split())
    assert before == after and kept == 7


def test_every_part_of_a_block_is_a_candidate() -> None:
    found = labels(BACKEND, network("float32", SHAPES, block))
    assert found == ["onednn.conv", "onednn.conv_add", "onednn.conv_add_add", "onednn.conv_add_add_act"]


REFUSED: dict[str, tuple[tuple[int, ...], Body]] = {
    "channels last": (
        (1, 9, 9, 8),
        lambda emit, weight, x: nn.conv2d(x, weight(8, 3, 3, 8), data_layout="NHWC", kernel_layout="OHWI"),
    ),
    "weights that are computed": ((8, 8, 3, 3), lambda emit, weight, x: nn.conv2d(weight(1, 8, 9, 9), x)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_does_not_compute_is_no_candidate(name: str) -> None:
    shape, body = REFUSED[name]
    assert labels(BACKEND, network("float32", [shape], body)) == []


def test_other_dtypes_are_no_candidates() -> None:
    assert labels(BACKEND, network("float16", SHAPES, block)) == []


def test_what_is_no_blob_is_refused() -> None:
    with pytest.raises(CompiledModelError, match="not the blob of a partition"):
        engines.create("onednn", b"ONNX" + bytes(300), {"threads": 1})


def test_tensors_of_another_size_are_refused() -> None:
    blob = BACKEND.engine_blob(function_of(as_one_partition(BACKEND, SHAPES, block)))
    run = engines.create("onednn", blob, {"threads": 1})
    wrong = [tvm.runtime.tensor(np.zeros(shape, "f")) for shape in ((1, 32, 27, 28), SHAPES[1], SHAPES[1])]
    with pytest.raises(ValueError, match="has 24192 elements, not 25088"):
        run(*wrong)
    with pytest.raises(ValueError, match="takes 3 tensors"):
        run(*wrong[:2])


def test_without_its_wheels_it_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    blob = BACKEND.engine_blob(function_of(as_one_partition(BACKEND, SHAPES, block)))
    monkeypatch.setattr(engine, "_LIBRARY", ("onednn-of-nobody", "lib/libdnnl.so.3"))
    engine._load.cache_clear()
    state = BACKEND.availability()
    assert not state.available and state.reason == "onednn-of-nobody not installed: `pip install collage-tvm[onednn]`"
    with pytest.raises(CompiledModelError, match=r"needs the engine 'onednn': onednn-of-nobody not installed: `pip"):
        engines.create("onednn", blob, {"threads": 1})
    engine._load.cache_clear()


def test_without_headers_a_candidate_has_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_HEADER", ("onednn-of-nobody", "include/oneapi/dnnl/dnnl.h"))
    engine.ENGINE.forget()
    with pytest.raises(CodegenError, match="oneDNN's headers are not installed"):
        BACKEND.engine_blob(function_of(as_one_partition(BACKEND, SHAPES, block)))
    engine.ENGINE.forget()
