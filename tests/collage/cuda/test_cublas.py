"""The cublas backend on host memory: Relax, blob, C++ engine and virtual machine as on a device, with a stand-in for
cuBLASLt that takes the library's descriptors at their word (`emulation/cublasLt.h`), against NumPy in float64.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import emulated
import numpy as np
import product_cases
import pytest
import tvm_ffi
from product_cases import (
    DTYPES,
    Case,
    argument_order,
    assert_close,
    codegen_function,
    constant,
    nn,
    op,
    tensor,
    weight,
    whole,
)
from tvm import relax

from collage.backends.cuda.cublas import CublasBackend
from collage.compile import build
from collage.compile.rewrite import apply
from collage.errors import CompiledModelError
from collage.runtime import blob, engines, native
from collage.runtime.cuda import choices
from collage.runtime.cuda.cublas.engine import ENGINE as cublas

pytestmark = pytest.mark.emulation


class OnHost(CublasBackend):
    """The backend as it is, but that its partitions are called with the host's tensors."""

    device: ClassVar[str] = "cpu"


@pytest.fixture(scope="module", autouse=True)
def _emulated_library() -> None:
    emulated.load("cublas")


def gelu(x: np.ndarray) -> np.ndarray:
    """The tanh form."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu_formula(emit: Any, x: Any) -> Any:
    """GELU as GPT-2 is exported: x 0.5 (tanh(0.798 (x + 0.0447 x^3)) + 1)."""

    def number(value: float) -> Any:
        return relax.const(np.asarray(value, DTYPES[str(x.ty.dtype)]))

    cube = emit(op.multiply(emit(op.power(x, number(3.0))), number(0.044715)))
    inner = emit(op.tanh(emit(op.multiply(emit(op.add(x, cube)), number(0.7978846)))))
    return emit(op.multiply(emit(op.multiply(x, number(0.5))), emit(op.add(inner, number(1.0)))))


def swapped(x: np.ndarray) -> np.ndarray:
    return np.swapaxes(x, -1, -2)


def heads(x: np.ndarray) -> np.ndarray:
    return x.transpose(0, 2, 1, 3)


def part(x: Any, begin: int) -> Any:
    """Four heads."""
    return op.strided_slice(x, [2], [begin], [begin + 4])


W, B = constant((8, 6)), constant((6,), 101)
w, b = weight((8, 6), "float32"), weight((6,), "float32", 101)
dot = op.matmul
CASES = {
    "plain": Case("matmul", ((5, 7), (7, 3)), lambda e, x, y: dot(x, y), np.matmul),
    "one row": Case("matmul", ((1, 7), (7, 3)), lambda e, x, y: dot(x, y), np.matmul),
    "one column": Case("matmul", ((5, 7), (7, 1)), lambda e, x, y: dot(x, y), np.matmul),
    "one of each": Case("matmul", ((1, 1), (1, 1)), lambda e, x, y: dot(x, y), np.matmul),
    "vector left": Case("matmul", ((7,), (7, 3)), lambda e, x, y: dot(x, y), np.matmul),
    "vector right": Case("matmul", ((5, 7), (7,)), lambda e, x, y: dot(x, y), np.matmul),
    "vectors": Case("matmul", ((7,), (7,)), lambda e, x, y: dot(x, y), np.matmul),
    "squared": Case("matmul", ((5, 5),), lambda e, x: dot(x, x), lambda x: x @ x),
    "linear on rank 3": Case("matmul", ((2, 5, 8),), lambda e, x: dot(x, W(x)), lambda x: x @ w),
    "rhs transposed": Case(
        "matmul", ((5, 7), (3, 7)), lambda e, x, y: dot(x, e(op.permute_dims(y))), lambda x, y: x @ y.T
    ),
    "lhs transposed": Case(
        "matmul", ((7, 5), (7, 3)), lambda e, x, y: dot(e(op.permute_dims(x)), y), lambda x, y: x.T @ y
    ),
    "both transposed": Case(
        "matmul",
        ((7, 5), (3, 7)),
        lambda e, x, y: dot(e(op.permute_dims(x)), e(op.permute_dims(y))),
        lambda x, y: x.T @ y.T,
    ),
    "batch": Case("matmul", ((4, 5, 7), (4, 7, 3)), lambda e, x, y: dot(x, y), np.matmul),
    "batch of two axes": Case("matmul", ((2, 3, 5, 7), (2, 3, 7, 3)), lambda e, x, y: dot(x, y), np.matmul),
    "batch, rhs shared": Case("matmul", ((4, 5, 7), (7, 3)), lambda e, x, y: dot(x, y), np.matmul),
    "batch, lhs shared": Case("matmul", ((5, 7), (4, 7, 3)), lambda e, x, y: dot(x, y), np.matmul),
    "batch, lhs transposed, rhs shared": Case(
        "matmul",
        ((4, 7, 5), (7, 3)),
        lambda e, x, y: dot(e(op.permute_dims(x, [0, 2, 1])), y),
        lambda x, y: swapped(x) @ y,
    ),
    "batch, both broadcast": Case("matmul", ((2, 1, 5, 7), (3, 7, 4)), lambda e, x, y: dot(x, y), np.matmul),
    "batch, rhs shared inside": Case("matmul", ((2, 3, 5, 7), (2, 1, 7, 4)), lambda e, x, y: dot(x, y), np.matmul),
    "scores of attention": Case(
        "matmul_scale",
        ((1, 9, 4, 8), (1, 9, 4, 8)),
        lambda e, q, k: op.divide(
            e(dot(e(op.permute_dims(q, [0, 2, 1, 3])), e(op.permute_dims(k, [0, 2, 3, 1])))),
            relax.const(np.asarray(8.0, DTYPES[str(q.ty.dtype)])),
        ),
        lambda q, k: heads(q) @ swapped(heads(k)) / 8,
    ),
    "values of attention": Case(
        "matmul_permute",
        ((2, 4, 9, 9), (2, 9, 4, 8)),
        lambda e, p, v: op.permute_dims(e(dot(p, e(op.permute_dims(v, [0, 2, 1, 3])))), [0, 2, 1, 3]),
        lambda p, v: heads(p @ heads(v)),
    ),
    "scores of attention out of one tensor": Case(
        "matmul_scale",
        ((1, 9, 12, 8),),
        lambda e, x: op.divide(
            e(dot(e(op.permute_dims(e(part(x, 0)), [0, 2, 1, 3])), e(op.permute_dims(e(part(x, 4)), [0, 2, 3, 1])))),
            relax.const(np.asarray(8.0, DTYPES[str(x.ty.dtype)])),
        ),
        lambda x: heads(x[:, :, :4]) @ swapped(heads(x[:, :, 4:8])) / 8,
    ),
    "values of attention out of one tensor": Case(
        "matmul_permute",
        ((2, 4, 9, 9), (2, 9, 12, 8)),
        lambda e, p, x: op.permute_dims(e(dot(p, e(op.permute_dims(e(part(x, 8)), [0, 2, 1, 3])))), [0, 2, 1, 3]),
        lambda p, x: heads(p @ heads(x[:, :, 8:])),
    ),
    "columns and rows": Case(
        "matmul",
        ((7, 12), (9, 5)),
        lambda e, x, y: dot(e(op.strided_slice(x, [1], [-8], [12])), e(op.strided_slice(y, [0], [1], [9]))),
        lambda x, y: x[:, 4:] @ y[1:],
    ),
    "rows by steps": Case(
        "matmul",
        ((7, 8), (8, 5)),
        lambda e, x, y: dot(e(op.strided_slice(x, [0], [1], [7], [2])), y),
        lambda x, y: x[1:7:2] @ y,
    ),
    "scale": Case(
        "matmul_scale",
        ((5, 8),),
        lambda e, x: op.multiply(relax.const(np.asarray(0.25, DTYPES[str(x.ty.dtype)])), e(dot(x, W(x)))),
        lambda x: x @ w / 4,
    ),
    "bias": Case("matmul_bias", ((2, 5, 8),), lambda e, x: op.add(e(dot(x, W(x))), B(x)), lambda x: x @ w + b),
    "bias first": Case("matmul_bias", ((5, 8),), lambda e, x: op.add(B(x), e(dot(x, W(x)))), lambda x: x @ w + b),
    "bias of rank 3, computed": Case(
        "matmul_bias", ((3, 5, 8), (1, 1, 6)), lambda e, x, y: op.add(e(dot(x, W(x))), y), lambda x, y: x @ w + y
    ),
    "bias on one row": Case(
        "matmul_bias", ((1, 8), (1, 6)), lambda e, x, y: op.add(e(dot(x, W(x))), y), lambda x, y: x @ w + y
    ),
    "bias on a batch": Case(
        "matmul_bias", ((3, 5, 8), (3, 8, 6)), lambda e, x, y: op.add(e(dot(x, y)), B(x)), lambda x, y: x @ y + b
    ),
    "relu": Case("matmul_relu", ((5, 8),), lambda e, x: nn.relu(e(dot(x, W(x)))), lambda x: np.maximum(x @ w, 0)),
    "gelu": Case("matmul_gelu", ((5, 8),), lambda e, x: nn.gelu_tanh(e(dot(x, W(x)))), lambda x: gelu(x @ w)),
    "bias, relu": Case(
        "matmul_bias_relu",
        ((5, 8),),
        lambda e, x: nn.relu(e(op.add(e(dot(x, W(x))), B(x)))),
        lambda x: np.maximum(x @ w + b, 0),
    ),
    "bias, gelu": Case(
        "matmul_bias_gelu",
        ((5, 8),),
        lambda e, x: nn.gelu_tanh(e(op.add(e(dot(x, W(x))), B(x)))),
        lambda x: gelu(x @ w + b),
    ),
    "bias, reshape, gelu's formula": Case(
        "matmul_bias_gelu",
        ((5, 8),),
        lambda e, x: gelu_formula(e, e(op.reshape(e(op.add(e(dot(x, W(x))), B(x))), (1, 5, 6)))),
        lambda x: gelu(x @ w + b)[None],
    ),
    "residual": Case(
        "matmul_residual", ((5, 8), (5, 6)), lambda e, x, r: op.add(e(dot(x, W(x))), r), lambda x, r: x @ w + r
    ),
    "residual is a weight": Case(
        "matmul_residual",
        ((5, 8),),
        lambda e, x: op.add(constant((5, 6), 102)(x), e(dot(x, W(x)))),
        lambda x: x @ w + weight((5, 6), "float32", 102),
    ),
    "residual on a batch": Case(
        "matmul_residual",
        ((3, 5, 8), (3, 8, 6), (3, 5, 6)),
        lambda e, x, y, r: op.add(r, e(dot(x, y))),
        lambda x, y, r: x @ y + r,
    ),
    "residual, relu": Case(
        "matmul_residual_relu",
        ((5, 8), (5, 6)),
        lambda e, x, r: nn.relu(e(op.add(e(dot(x, W(x))), r))),
        lambda x, r: np.maximum(x @ w + r, 0),
    ),
    "bias, reshape, residual": Case(
        "matmul_bias_residual",
        ((5, 8), (1, 5, 6)),
        lambda e, x, r: op.add(r, e(op.reshape(e(op.add(e(dot(x, W(x))), B(x))), (1, 5, 6)))),
        lambda x, r: (x @ w + b)[None] + r,
    ),
    "bias, residual, relu": Case(
        "matmul_bias_residual_relu",
        ((2, 5, 8), (2, 5, 6)),
        lambda e, x, r: nn.relu(e(op.add(e(op.add(e(dot(x, W(x))), B(x))), r))),
        lambda x, r: np.maximum(x @ w + b + r, 0),
    ),
}


def make_blob(case: Case, dtype: str, backend: CublasBackend | None = None) -> bytes:
    backend = backend or OnHost()
    return backend.engine_blob(codegen_function(whole(case.module(dtype), backend, f"cublas.{case.label}")))


def expected(case: Case, arrays: list[np.ndarray], dtype: str) -> np.ndarray:
    """The reference on what the dtype holds, weights included."""
    values = [array.astype(np.float64) for array in arrays]
    if dtype == "float32":
        return np.asarray(case.reference(*values))
    rounded = {"w": weight((8, 6), dtype).astype(np.float64), "b": weight((6,), dtype, 101).astype(np.float64)}
    kept = {name: globals()[name] for name in rounded}
    globals().update(rounded)
    try:
        return np.asarray(case.reference(*values))
    finally:
        globals().update(kept)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_a_product_has_numpys_value(name: str, dtype: str) -> None:
    case = CASES[name]
    arrays = case.arrays(dtype)
    reference = expected(case, arrays, dtype)
    backend = OnHost()
    partitioned = whole(case.module(dtype), backend, f"cublas.{case.label}")
    run = engines.create("cublas", backend.engine_blob(codegen_function(partitioned)), {"threads": 1})
    arguments = [tensor(arrays[i]) for i in argument_order(partitioned)]
    result = tensor(np.full(reference.shape, np.nan, DTYPES[dtype]))
    for _ in range(2):  # nothing is left behind by the first call
        run(*arguments, result)
        assert_close(result.numpy(), reference, dtype, k=8)


def test_the_erf_form_of_gelu_in_half_precision_has_its_value_to_half_a_digit() -> None:
    """cuBLASLt computes the tanh form: 4.8e-4 off at most, like a number between 1 and 2 that is rounded to float16."""
    case = Case(
        "matmul_bias_gelu_erf",
        ((64, 8),),
        lambda e, x: nn.gelu(e(op.add(e(dot(x, W(x))), B(x)))),
        lambda x: (y := x @ w + b) / 2 * (1 + np.vectorize(math.erf)(y / math.sqrt(2))),
    )
    backend = OnHost()
    partitioned = whole(case.module("float16"), backend, f"cublas.{case.label}")
    run = engines.create("cublas", backend.engine_blob(codegen_function(partitioned)), {"threads": 1})
    (x,) = arrays = case.arrays("float16")
    result = tensor(np.full((64, 6), np.nan, "float16"))
    run(tensor(x), result)
    reference = expected(case, arrays, "float16")
    assert np.abs(reference).max() > 2, "values where the forms differ most"
    assert np.abs(result.numpy() - reference).max() <= 4.8e-4 + 2**-11 * np.abs(reference).max()


@pytest.mark.parametrize("name", ["bias, reshape, gelu's formula", "values of attention", "batch, both broadcast"])
def test_in_the_virtual_machine(name: str) -> None:
    case, backend = CASES[name], OnHost()
    partitioned = whole(case.module("float32"), backend, f"cublas.{case.label}")
    model = build.build(partitioned, [backend], threads=1)
    arrays = case.arrays("float32")
    assert_close(model(*arrays), expected(case, arrays, "float32"), "float32", k=9)


def test_a_network_of_several_partitions_runs_from_its_file_in_another_process(tmp_path: Any) -> None:
    """The file carries the engine: the other process compiles nothing."""
    backend = OnHost()
    case = Case(
        "",
        ((4, 8),),
        lambda e, x: op.nn.relu(e(op.add(e(dot(e(op.add(e(dot(x, W(x))), B(x))), constant((6, 8), 103)(x))), x))),
        lambda x: np.maximum((x @ w + b) @ weight((6, 8), "float32", 103) + x, 0),
    )
    module = case.module("float32")
    graph, found = product_cases.candidates(module, backend)
    first = next(c for c in found if c.composites[0][0] == "cublas.matmul_bias")
    second = next(c for c in found if c.composites[0][0] == "cublas.matmul_residual_relu")
    partitioned = apply(module, graph, [first, second], {"cublas": backend})
    info = {"inputs": [["x0", [4, 8], "float32"]], "outputs": [["y", [4, 8], "float32"]], "threads": 1, "engines": []}
    executable = build.compile_partitioned(partitioned, [backend], 1, [native.metadata_module(info)])
    file, x = tmp_path / "model.so", case.arrays("float32")[0]
    addons = [native.object_file(), emulated.object_file("cublas")]
    executable.export_library(str(file), addons=addons, options=["-Wl,-z,nodelete"])
    np.save(tmp_path / "x.npy", x)
    script = (
        "import sys, numpy as np, collage.runtime\n"
        "model = collage.runtime.load(sys.argv[1])\n"
        "np.save(sys.argv[3], model(np.load(sys.argv[2])))\n"
        "assert 'collage.backends' not in sys.modules\n"
    )
    paths = [str(file), str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}  # where the other process remembers its choices
    subprocess.run([sys.executable, "-c", script, *paths], check=True, timeout=300, env=environment)
    assert_close(np.load(tmp_path / "y.npy"), case.reference(x.astype(np.float64)), "float32", k=14)


def test_the_fastest_proposal_is_reported_and_can_be_kept() -> None:
    made = make_blob(CASES["bias"], "float32")
    choice = cublas.choose(made, {})
    # The stand-in proposes four, says of one that it does not work, and refuses the first when it is run.
    assert len(choice["microseconds"]) == 2
    assert cublas.choose(made, {}) == choice  # timed once per process
    header, tensors = blob.unpack(made)
    del header["tensors"]
    other = {**choice, "algorithm": choice["algorithm"][:16] + "07" + choice["algorithm"][18:]}
    kept = cublas.choose(blob.pack({**header, "choice": other}, tensors), {})
    assert kept["algorithm"] == other["algorithm"] and kept["microseconds"] == []  # taken as it is, untimed


def proposal(choice: dict[str, Any]) -> int:
    """Which of the stand-in's proposals was chosen."""
    return int.from_bytes(bytes.fromhex(choice["algorithm"])[8:16], "little")


def unseen(columns: int) -> Case:
    """A product that no other test has, so that it was not timed yet."""
    return Case("matmul", ((4, 9), (9, columns)), lambda e, x, y: dot(x, y), np.matmul)


def test_algorithms_are_told_apart_by_replays_and_not_by_the_hosts_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first takes the device twice as long as the last, and the host ten times that for the launch of either."""
    chosen = cublas.choose(make_blob(unseen(2), "float32"), {})
    assert proposal(chosen) == 3
    assert chosen["microseconds"] == pytest.approx([2e4, 1e4], rel=0.2) and len(chosen["errors"]) == 2
    monkeypatch.setenv("COLLAGE_EMULATED_NO_CAPTURE", "1")
    launched = cublas.choose(make_blob(unseen(3), "float32"), {})
    assert proposal(launched) == 1, "the library's first, of two that are not told apart"
    assert launched["microseconds"] == pytest.approx([1e5, 1e5], rel=0.2)


class Stream(ctypes.Structure):
    """A stream of the stand-in for the CUDA runtime."""

    _fields_ = (("number", ctypes.c_ulonglong),)


def test_every_stream_has_a_workspace_of_its_own_also_one_that_is_captured() -> None:
    case = CASES["plain"]
    made = make_blob(case, "float32")
    chosen = cublas.choose(made, {})
    with_workspace = {**chosen, "algorithm": chosen["algorithm"][:16] + "01" + chosen["algorithm"][18:]}
    run = cublas.create(blob.with_choice(made, with_workspace), {})
    arrays = case.arrays("float32")
    arguments = [*map(tensor, arrays), tensor(np.zeros((5, 3), "float32"))]
    emulation = ctypes.CDLL(None)
    emulation.collage_emulated_workspace.restype = ctypes.c_void_p
    emulation.collage_emulated_capture.argtypes = [ctypes.c_void_p]
    cpu = tvm_ffi.device("cpu", 0)

    def used(stream: Stream | None) -> int:
        with tvm_ffi.use_raw_stream(cpu, 0 if stream is None else ctypes.addressof(stream)):
            run(*arguments)
        return int(emulation.collage_emulated_workspace())

    streams = [None, Stream(1001), Stream(1002)]
    found = [used(stream) for stream in streams]
    assert len(set(found)) == 3 and [used(stream) for stream in streams] == found
    captured = Stream(1003)
    emulation.collage_emulated_capture(ctypes.addressof(captured))
    try:
        assert used(captured) not in found
    finally:
        emulation.collage_emulated_capture(None)


def test_the_choice_of_another_version_is_made_again() -> None:
    header, tensors = blob.unpack(make_blob(CASES["bias"], "float32"))
    del header["tensors"]
    old = {"algorithm": "00" * 64, "version": 120000, "microseconds": []}
    assert cublas.choose(blob.pack({**header, "choice": old}, tensors), {})["microseconds"]


def test_what_was_fastest_is_timed_once_and_ships_with_the_model(
    choices_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_blob(CASES["bias"], "float32")
    cublas.create(first, {"threads": 1})
    (remembered,) = choices_folder.glob("cublas/choices/*.json")
    chosen = json.loads(remembered.read_text())
    assert chosen == cublas.choose(first, {})

    def never(*_: Any) -> Any:
        raise AssertionError("timed a second time")

    monkeypatch.setattr(cublas, "ask", never)
    cublas.create(first, {"threads": 1})
    assert "choice" not in blob.unpack(first)[0]  # nothing is looked up where there is no device
    monkeypatch.setattr("collage.backends.cuda.base.cuda_exists", lambda: True)
    shipped = make_blob(CASES["bias"], "float32")
    assert blob.unpack(shipped)[0]["choice"] == chosen
    remembered.unlink()
    cublas.create(shipped, {"threads": 1})
    assert not remembered.exists()  # the blob says it


def test_a_choice_is_of_one_device_and_version_and_unreadable_ones_are_made_again(
    choices_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_blob(CASES["bias"], "float32")
    cublas.create(made, {})
    (remembered,) = choices_folder.glob("cublas/choices/*.json")
    remembered.write_text("{")
    cublas.create(made, {})
    assert "algorithm" in json.loads(remembered.read_text())
    monkeypatch.setattr(choices, "cuda_name", lambda index: "another device")
    assert cublas.known(made) == made


def test_half_precision_is_added_up_in_float32() -> None:
    """4096 and 31 times 1: in float16 each 1 is lost. The stand-in adds in D's type where it may add in place."""
    k, dtype = 256, "float16"
    case = Case("matmul", ((1, k), (k, 1)), lambda e, x, y: dot(x, y), np.matmul)
    x = np.zeros((1, k), np.float16)
    x[0, :8], x[0, 8::8] = 512, 1
    y = np.ones((k, 1), np.float16)
    for precision in ("float32", "tf32"):
        result = tensor(np.zeros((1, 1), np.float16))
        run = engines.create("cublas", make_blob(case, dtype, OnHost(precision=precision)), {"threads": 1})
        run(tensor(x), tensor(y), result)
        assert result.numpy() == np.float16(4096 + 31)


def test_a_product_that_the_library_does_not_run_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLAGE_EMULATED_REFUSES", "1")
    case = Case("matmul", ((5, 9), (9, 3)), lambda e, x, y: dot(x, y), np.matmul)
    with pytest.raises(CompiledModelError, match=r"none of its algorithms.*NOT_SUPPORTED"):
        engines.create("cublas", make_blob(case, "float32"), {"threads": 1})


def test_wrong_calls_are_refused() -> None:
    run = engines.create("cublas", make_blob(CASES["plain"], "float32"), {"threads": 1})
    x, y = CASES["plain"].arrays("float32")
    with pytest.raises(ValueError, match="takes 3 tensors, 2 were given"):
        run(tensor(x), tensor(y))
    odd = tensor(np.zeros(64, "float32"))._create_view((5, 7), relative_byte_offset=4)
    with pytest.raises(ValueError, match="argument 0 is not aligned to 16 bytes"):
        run(odd, tensor(y), tensor(np.zeros((5, 3), "float32")))


def test_products_that_the_library_does_not_take_are_refused_when_the_function_is_made() -> None:
    header, tensors = blob.unpack(make_blob(CASES["plain"], "float32"))
    del header["tensors"]
    too_small = {**header, "rhs": {**header["rhs"], "ld": 2}}
    with pytest.raises(CompiledModelError, match="cublasLtMatmulAlgoGetHeuristic: CUBLAS_STATUS_INVALID_VALUE"):
        cublas.create(blob.pack(too_small, tensors), {})
    with pytest.raises(CompiledModelError, match="no epilogue swish"):
        cublas.create(blob.pack({**header, "activation": "swish"}, tensors), {})
    with pytest.raises(CompiledModelError, match="invalid device ordinal"):
        cublas.create(blob.pack(header, tensors), {"device": 3})


def test_the_blob_names_precision_and_label() -> None:
    made = make_blob(CASES["bias, relu"], "float32", type("Tf32", (OnHost,), {})("tf32"))
    header, tensors = blob.unpack(made)
    assert (header["op"], header["label"], header["precision"]) == ("matmul", "cublas.matmul_bias_relu", "tf32")
    assert header["rhs"]["at"] == {"tensor": "w0"} and header["bias"] == {"tensor": "w1"}
    np.testing.assert_array_equal(tensors["w0"], w)
    assert json.dumps(header)  # plain values only
