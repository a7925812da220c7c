"""The `winograd` backend: what it takes, and that it computes it on any number of threads, here and where deployed."""

from __future__ import annotations

import platform
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from collage.backends.winograd import WinogradBackend
from collage.compile.build import compile_partitioned
from collage.errors import CodegenError, CompiledModelError
from collage.runtime import engines
from collage.runtime.threads import configure_threads
from collage.runtime.winograd.engine import ENGINE
from collage.testing import fresh
from tests.collage.backends.one_partition import (
    Body,
    as_one_partition,
    check,
    check_exported,
    function_of,
    labels,
    network,
)

nn, op = relax.op.nn, relax.op
BACKEND = WinogradBackend()


@pytest.mark.parametrize("seed", range(12))
def test_drawn_images_give_what_the_definition_gives(seed: int) -> None:
    """Tiles, vectors and pieces meet many remainders; epilogues come in both orders."""
    rng = random.Random(seed)
    batch, channels, filters = rng.choice((1, 1, 3)), rng.choice((1, 3, 16, 33)), rng.choice((1, 8, 40, 64))
    height, width = rng.choice((3, 7, 14, 30)), rng.choice((2, 8, 17, 56))
    padding = [rng.randrange(3) for _ in range(4)]
    result = (batch, filters, height + padding[0] + padding[2] - 2, width + padding[1] + padding[3] - 2)
    add_bias, add_residual, activation = rng.random() < 0.7, rng.random() < 0.5, rng.randrange(4)

    def body(emit: Any, weight: Any, x: Any, y: Any = None) -> Any:
        value = nn.conv2d(x, weight(filters, channels, 3, 3), padding=padding)
        if add_bias:
            value = op.add(emit(value), weight(1, filters, 1, 1))
        if y is not None:
            value = op.add(y, emit(value))
        return [
            lambda v: v,
            lambda v: nn.relu(emit(v)),
            lambda v: op.clip(emit(v), -0.5, 6.0),
            lambda v: nn.leakyrelu(emit(v), 0.2),
        ][activation](value)

    check(BACKEND, [(batch, channels, height, width), *([result] if add_residual else [])], body)


@pytest.mark.parametrize(
    ("depth", "taps", "padding"),
    [(4, 3, (1, 1, 1)), (5, 3, (0, 1, 1)), (3, 1, (0, 1, 0)), (2, 1, (1, 1, 1)), (7, 5, (2, 1, 1)), (1, 3, (2, 1, 1))],
)
@pytest.mark.parametrize("batch", [1, 2])
def test_volumes(batch: int, depth: int, taps: int, padding: tuple[int, ...]) -> None:
    def body(emit: Any, weight: Any, x: Any) -> Any:
        value = emit(nn.conv3d(x, weight(24, 20, taps, 3, 3), padding=padding))
        return op.add(value, weight(24, 1, 1, 1))

    check(BACKEND, [(batch, 20, depth, 12, 9)], body)


def block(emit: Any, weight: Any, x: Any, y: Any) -> Any:
    """A convolution with bias, residual and relu."""
    value = emit(op.add(emit(nn.conv2d(x, weight(48, 32, 3, 3), padding=(1, 1))), weight(1, 48, 1, 1)))
    return nn.relu(emit(op.add(value, y)))


SHAPES = [(1, 32, 28, 28), (1, 48, 28, 28)]
#: Architecture -> processors of it that have fewer instructions: 256 and 128 bits, and 128 on ARM.
OTHERS = {"x86_64": ["x86-64-v3", "x86-64"], "aarch64": ["armv8-a"]}


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("image", [6, 40])
def test_any_number_of_threads(threads: int, image: int) -> None:
    """More than the pool has, too: a model may run where there are fewer than it was compiled for."""
    configure_threads(2)
    check(BACKEND, [(1, 32, image, image), (1, 48, image, image)], block, threads)


def test_two_partitions_share_their_workspace() -> None:
    """The second one needs more of it than the first."""
    engines.register()
    rng = np.random.default_rng(0)
    small, large = (as_one_partition(BACKEND, [(1, c, 28, 28), (1, 48, 28, 28)], _block(c)) for c in (8, 64))
    machines = [relax.VirtualMachine(compile_partitioned(module, [BACKEND], 2), tvm.cpu()) for module in (small, large)]
    arrays = [[rng.uniform(-1, 1, (1, c, 28, 28)).astype("f"), np.zeros((1, 48, 28, 28), "f")] for c in (8, 64)]
    tensors = [[tvm.runtime.tensor(array) for array in pair] for pair in arrays]
    first = machines[0]["main"](*tensors[0]).numpy()
    machines[1]["main"](*tensors[1])
    np.testing.assert_array_equal(machines[0]["main"](*tensors[0]).numpy(), first)


def _block(channels: int) -> Body:
    def body(emit: Any, weight: Any, x: Any, y: Any) -> Any:
        return op.add(emit(nn.conv2d(x, weight(48, channels, 3, 3), padding=(1, 1))), y)

    return body


@pytest.mark.parametrize("processor", OTHERS[platform.machine()])
def test_processors_with_narrower_vectors(processor: str) -> None:
    """What the compiler makes for them runs here, too."""
    printed = fresh.run("tests.collage.backends.winograd_elsewhere", [f"-march={processor}"])
    assert float(printed) < 2e-5


def test_an_exported_model_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    check_exported(BACKEND, SHAPES, block, tmp_path)


def test_every_part_of_a_block_is_a_candidate() -> None:
    assert labels(BACKEND, network("float32", SHAPES, block)) == [
        "winograd.conv",
        "winograd.conv_add",
        "winograd.conv_add_add",
        "winograd.conv_add_add_act",
    ]


def _convolution(kernel: tuple[int, ...] = (8, 8, 3, 3), **options: Any) -> Body:
    return lambda emit, weight, x: nn.conv2d(x, weight(*kernel), **options)


REFUSED: dict[str, tuple[tuple[int, ...], Body]] = {
    "stride": ((1, 8, 9, 9), _convolution(strides=(2, 2))),
    "stride in one direction": ((1, 8, 9, 9), _convolution(strides=(1, 2))),
    "dilation": ((1, 8, 9, 9), _convolution(dilation=(2, 2))),
    "groups": ((1, 8, 9, 9), _convolution((8, 2, 3, 3), groups=4)),
    "one by one": ((1, 8, 9, 9), _convolution((8, 8, 1, 1))),
    "five by five": ((1, 8, 9, 9), _convolution((8, 8, 5, 5))),
    "channels last": ((1, 9, 9, 8), _convolution((8, 3, 3, 8), data_layout="NHWC", kernel_layout="OHWI")),
    "weights that are computed": ((8, 8, 3, 3), lambda emit, weight, x: nn.conv2d(weight(1, 8, 9, 9), x)),
    "many taps": ((1, 4, 12, 5, 5), lambda emit, weight, x: nn.conv3d(x, weight(4, 4, 9, 3, 3))),
    "stride in depth": (
        (1, 4, 9, 5, 5),
        lambda _, weight, x: nn.conv3d(x, weight(4, 4, 3, 3, 3), strides=(2, 1, 1)),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_does_not_compute_is_no_candidate(name: str) -> None:
    shape, body = REFUSED[name]
    assert labels(BACKEND, network("float32", [shape], body)) == []


def test_other_dtypes_are_no_candidates() -> None:
    assert labels(BACKEND, network("float16", SHAPES, block)) == []


def test_an_activation_that_is_not_linear_in_pieces_stays_outside() -> None:
    def body(emit: Any, weight: Any, x: Any) -> Any:
        return op.tanh(emit(nn.conv2d(x, weight(8, 8, 3, 3))))

    assert labels(BACKEND, network("float32", [(1, 8, 9, 9)], body)) == ["winograd.conv"]


def test_what_is_no_blob_is_refused() -> None:
    with pytest.raises(CompiledModelError, match="not the blob of a partition"):
        engines.create("winograd", b"ONNX" + bytes(300), {"threads": 1})


def test_tensors_of_another_size_are_refused() -> None:
    module = as_one_partition(BACKEND, SHAPES, block)
    function = function_of(module)
    run = engines.create("winograd", BACKEND.engine_blob(function), {"threads": 1})
    wrong = [tvm.runtime.tensor(np.zeros(shape, "f")) for shape in ((1, 32, 27, 28), SHAPES[1], SHAPES[1])]
    with pytest.raises(ValueError, match="has 24192 elements, not 25088"):
        run(*wrong)
    with pytest.raises(ValueError, match="takes 3 tensors"):
        run(*wrong[:2])


def test_a_function_that_is_no_partition_of_its_own_is_refused() -> None:
    plain = network("float32", SHAPES, block)["main"]
    with pytest.raises(CodegenError, match="labelled pattern"):
        BACKEND.engine_blob(plain)


def test_a_compiler_that_fails_costs_the_candidates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is asked once, and each candidate has its reason."""
    asked = tmp_path / "asked"
    compiler = tmp_path / "c++"
    compiler.write_text(f"#!/bin/sh\necho once >> {asked}\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("TVM_FFI_CACHE_DIR", str(tmp_path / "cache"))
    ENGINE.forget()
    module = as_one_partition(BACKEND, SHAPES, block)
    function = function_of(module)
    for _ in range(2):
        with pytest.raises(CodegenError, match="cannot be compiled"):
            BACKEND.engine_blob(function)
    assert asked.read_text() == "once\n"
    ENGINE.forget()


def test_without_a_compiler_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    state = BACKEND.availability()
    assert not state.available and "is not found, which compiles the engine" in state.reason
