"""What TVM makes for a CUDA device, as far as it can be seen without one: kernels with threads, and their source."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx

from collage.backends.cuda import lower, native, target
from collage.backends.cuda.exact_math import use_exact_math
from collage.backends.cuda.native import TVMCudaBackend
from collage.backends.cuda.target import cuda_target
from collage.compile.build import compile_partitioned
from collage.compile.rewrite import apply
from collage.errors import BackendUnavailableError, CodegenError, CompiledModelError
from collage.graph.candidates import CandidatePartition
from collage.graph.from_relax import read_graph
from collage.graph.index_set import IndexSet
from collage.graph.sub_graph import SubGraph
from collage.runtime import devices
from collage.runtime.cuda import device as cuda_device
from collage.runtime.cuda import native as cuda_files

pytestmark = pytest.mark.emulation

op, nn = relax.op, relax.op.nn
ARCH = "sm_90"
Body = Callable[..., Any]

#: name -> shapes of the inputs, dtype, what is computed.
CASES: dict[str, tuple[tuple[tuple[int, ...], ...], str, Body]] = {
    "convolution": (
        ((1, 16, 14, 14), (32, 16, 3, 3)),
        "float32",
        lambda emit, x, w: emit(nn.relu(emit(nn.conv2d(x, w, padding=(1, 1))))),
    ),
    "depthwise": (
        ((1, 16, 14, 14), (16, 1, 3, 3)),
        "float32",
        lambda emit, x, w: emit(nn.conv2d(x, w, groups=16)),
    ),
    "product": (((64, 128), (128, 96)), "float32", lambda emit, a, b: emit(op.matmul(a, b))),
    "vector": (((1, 128), (128, 96)), "float32", lambda emit, a, b: emit(op.matmul(a, b))),
    "softmax": (((4, 16, 16),), "float32", lambda emit, x: emit(nn.softmax(x))),
    "layer norm": (
        ((8, 64), (64,), (64,)),
        "float32",
        lambda emit, x, g, b: emit(nn.layer_norm(x, g, b, axes=[-1])),
    ),
    "sum of all": (((64, 64),), "float32", lambda emit, x: emit(op.sum(x))),
    "maximum": (((8, 64),), "float32", lambda emit, x: emit(op.max(x, [1]))),
    "tanh": (((8, 64),), "float32", lambda emit, x: emit(op.tanh(x))),
    "gelu by tanh": (((8, 64),), "float32", lambda emit, x: emit(nn.gelu_tanh(x))),
    "sine and cosine": (((8, 64),), "float32", lambda emit, x: emit(op.add(emit(op.sin(x)), emit(op.cos(x))))),
    "power": (((8, 64), (8, 64)), "float32", lambda emit, x, y: emit(op.power(x, y))),
    "sigmoid": (((8, 64),), "float32", lambda emit, x: emit(op.sigmoid(x))),
    "gelu": (((8, 64),), "float32", lambda emit, x: emit(nn.gelu(x))),
    "pooling": (((1, 8, 16, 16),), "float32", lambda emit, x: emit(nn.max_pool2d(x, (3, 3), (2, 2), (1, 1)))),
    "transposition": (((2, 8, 4, 6),), "float32", lambda emit, x: emit(op.permute_dims(x, [0, 2, 1, 3]))),
}


def one_partition(shapes: tuple[tuple[int, ...], ...], dtype: str, body: Body) -> Any:
    """A network that is one native partition."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"p{i}", relax.TensorType(shape, dtype)) for i, shape in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(body(builder.emit, *params))
        builder.emit_func_output(result)
    module = relax.transform.CanonicalizeBindings()(builder.get())
    graph = read_graph(module)
    backend = TVMCudaBackend(arch=ARCH)
    cover = [CandidatePartition(SubGraph(graph, graph.coverable), backend.name)]
    return apply(module, graph, cover, {backend.name: backend})


def source(partitioned: Any) -> str:
    """The CUDA source of all of its kernels."""
    executable = compile_partitioned(partitioned, [TVMCudaBackend(arch=ARCH)], 1)
    found: list[str] = []

    def visit(module: Any) -> None:
        for imported in module.imports:
            if imported.kind == "cuda":
                found.append(imported.inspect_source())
            visit(imported)

    visit(executable.mod)
    return "\n".join(found)


@pytest.mark.parametrize("name", CASES)
def test_every_kernel_has_threads(name: str) -> None:
    partitioned = one_partition(*CASES[name])
    unscheduled = lower.one_kernel_per_partition(partitioned, cuda_target(ARCH))
    kernels = [f for _, f in unscheduled.functions_items() if isinstance(f, tvm.tirx.PrimFunc)]
    assert len(kernels) == 1 and not lower.has_threads(kernels[0])
    names = re.findall(r"__launch_bounds__\(\d+\) ([^\s(]+)\(", source(partitioned))
    assert names and all(name.isidentifier() for name in names), f"nvcc takes no kernels of these names: {names}"


def test_a_product_in_half_precision_uses_the_tensor_cores() -> None:
    product = CASES["product"]
    text = source(one_partition(((128, 256), (256, 128)), "float16", product[2]))
    assert "nvcuda::wmma" in text
    assert "nvcuda::wmma" not in source(one_partition(((128, 256), (256, 128)), "float32", product[2]))


def test_nvrtc_without_headers_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "cuda_exists", lambda: True)
    monkeypatch.setattr(native, "find_spec", lambda name: object())
    monkeypatch.delenv("TVM_CUDA_COMPILE_MODE", raising=False)
    monkeypatch.setenv("CUDA_PATH", str(tmp_path))
    monkeypatch.setattr(cuda_files, "_wheel_folders", lambda kind: [])
    monkeypatch.setattr(cuda_files, "_toolkits", list)
    found = TVMCudaBackend(arch=ARCH).availability()
    assert not found.available and "CUDA_PATH" in found.reason and "\n" not in found.reason
    for name in ("include/cuda_runtime.h", "targets/x86_64-linux/include/cccl/cuda/std/cstdint"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert TVMCudaBackend(arch=ARCH).availability().available


def test_nvrtc_takes_the_headers_of_the_wheels_where_there_is_no_toolkit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    include = tmp_path / "cu13" / "include"
    for name in ("cuda_runtime.h", "crt/host_defines.h", "cccl/cuda/std/cstdint"):
        (include / name).parent.mkdir(parents=True, exist_ok=True)
        (include / name).touch()
    monkeypatch.setenv("CUDA_PATH", str(tmp_path))
    monkeypatch.setenv("TVM_CUDA_NVRTC_EXTRA_OPTS", "--mine")
    monkeypatch.setattr(cuda_files, "_wheel_folders", lambda kind: [include])
    with native.CudaLowering(cuda_target(ARCH)).scope():
        assert os.environ["CUDA_PATH"] == str(include.parent)
        assert os.environ["TVM_CUDA_NVRTC_EXTRA_OPTS"] == f"--mine -I{include} -I{include}/cccl"
        assert tvm.target.Target.current().attrs["arch"] == ARCH
    assert os.environ["CUDA_PATH"] == str(tmp_path)


def test_the_target_is_plain_even_for_hopper() -> None:
    plain = cuda_target(ARCH)
    assert plain.kind.name == "cuda" and str(plain.attrs["arch"]) == "sm_90"
    assert plain.host.kind.name == "llvm"


def test_a_kernel_that_no_rule_schedules_is_an_error_not_a_kernel_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lower, "rules", lambda: [])
    with pytest.raises(CodegenError, match="threads"):
        lower.lower(one_partition(*CASES["softmax"]), cuda_target(ARCH))


def test_calls_between_the_first_and_the_last_are_captured_where_that_is_allowed() -> None:
    def chain(emit: Any, x: Any) -> Any:
        for _ in range(4):
            x = emit(nn.softmax(x))
        return x

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 16), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(chain(builder.emit, x))
        builder.emit_func_output(result)
    module = relax.transform.CanonicalizeBindings()(builder.get())
    graph = read_graph(module)
    backend = TVMCudaBackend(arch=ARCH)
    cover = [CandidatePartition(SubGraph(graph, IndexSet([i])), backend.name) for i in graph.coverable]
    partitioned = apply(module, graph, cover, {backend.name: backend})
    captured = str(lower.lower(partitioned, cuda_target(ARCH), graph=True))
    assert "cuda_graph.run_or_capture" in captured
    assert "cuda_graph" not in str(lower.lower(partitioned, cuda_target(ARCH), graph=False))


def test_the_maximum_of_a_masked_row_is_minus_infinity() -> None:
    """TVM's own reduces from the largest finite number."""
    text = source(one_partition(*CASES["maximum"]))
    assert "-3.40" not in text and ("CUDART_INF" in text or "inf" in text.lower())
    assert np.isneginf(np.max(np.full((1, 4), -np.inf)))


def test_without_a_device_the_message_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (devices, native, cuda_device, target):
        monkeypatch.setattr(module, "cuda_exists", lambda: False)
    with pytest.raises(CompiledModelError, match=r"libcuda\.so\.1"):
        devices.device_of("cuda")
    assert "finds no CUDA device" in TVMCudaBackend().availability().reason
    with pytest.raises(BackendUnavailableError, match="arch='sm_90'"):
        cuda_target()


@pytest.mark.parametrize("name", ["tanh", "gelu by tanh", "sine and cosine"])
def test_float32_has_no_function_that_fast_math_spoils(name: str) -> None:
    """Kernels are compiled with `--use_fast_math`, which makes one instruction of each of these."""
    assert not re.search(r"\b(__)?(tanh|sin|cos|tan)f?\(", source(one_partition(*CASES[name])))


EXACT: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[float, ...]]] = {
    "tanh": (tirx.tanh, np.tanh, (0.0, 1e-8, -1e-3, 0.3, -0.7, 2.5, 8.0, -30.0, np.inf, -np.inf, np.nan)),
    "sin": (tirx.sin, np.sin, (0.0, -1e-4, 0.7, 1.6, -3.2, 4.8, 100.0, -1000.0, 3e4, np.nan)),
    "cos": (tirx.cos, np.cos, (0.0, -1e-4, 0.7, 1.6, -3.2, 4.8, 100.0, -1000.0, 3e4, np.nan)),
    "tan": (tirx.tan, np.tan, (0.0, -1e-4, 0.7, 1.4, -3.2, 4.8, 100.0)),
}


def computed(body: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    """A kernel of float32, with its functions made exact, on the CPU."""
    inputs = [te.placeholder(a.shape, "float32", f"x{i}") for i, a in enumerate(arrays)]
    result = te.compute(arrays[0].shape, lambda i: body(*(x[i] for x in inputs)), "result")
    kernel = use_exact_math(te.create_prim_func([*inputs, result]))
    library = tvm.compile(tvm.IRModule({"main": kernel.with_attr("global_symbol", "main")}), target="llvm")
    out = tvm.runtime.tensor(np.zeros_like(arrays[0]))
    library["main"](*map(tvm.runtime.tensor, arrays), out)
    return out.numpy()


@pytest.mark.parametrize("name", EXACT)
def test_what_stands_for_a_function_is_right_to_float32(name: str) -> None:
    function, reference, values = EXACT[name]
    x = np.array(values, "float32")
    np.testing.assert_allclose(computed(function, x), reference(x.astype("float64")), rtol=2e-6, atol=2e-7)


def test_powers_of_negative_numbers_have_their_sign() -> None:
    """Fast math makes two to a multiple of the logarithm of them."""
    x = np.array([-2, -2, -2, 2, 0, 0, -0.5, 3, -3, 7], "float32")
    y = np.array([3, 2, 0.5, 0.5, 0, 2, -1, -2, 0, 1], "float32")
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(computed(tirx.power, x, y), np.power(x, y), rtol=1e-6)


def test_a_function_of_a_function_is_made_exact_twice() -> None:
    x = np.array([-1.5, 0.2], "float32")
    np.testing.assert_allclose(computed(lambda v: tirx.tanh(tirx.sin(v)), x), np.tanh(np.sin(x)), rtol=2e-6)
