"""What the CUTLASS backend takes, and as what: products with their epilogues, activations by their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cutlass_cases import CASES, scalar
from product_cases import Shape, candidates, codegen_function, constant, labels, whole
from tvm import relax

from collage.backends.cuda.cutlass.backend import CutlassBackend
from collage.backends.cuda.cutlass.problem import Computation, read_computation
from collage.backends.library.composite import Composite
from collage.errors import BackendUnavailableError, CodegenError, PluginError

pytestmark = pytest.mark.emulation

op, nn = relax.op, relax.op.nn
BACKEND = CutlassBackend(arch="sm_80")


def module_of(build: Callable[..., Any], *shapes: Shape, dtype: str = "float32") -> Any:
    """A network of one dataflow block."""
    inputs = [relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, shape in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit_output(build(builder.emit, *inputs))
        builder.emit_func_output(result)
    return relax.transform.CanonicalizeBindings()(builder.get())


def taken(build: Callable[..., Any], *shapes: Shape, dtype: str = "float32", backend: Any = BACKEND) -> list[str]:
    """The operators of each candidate."""
    graph, found = candidates(module_of(build, *shapes, dtype=dtype), backend)
    return sorted("+".join(graph.nodes[i].op.split(".")[-1] for i in c.sub_graph.inside) for c in found)


def computation(name: str) -> Computation:
    """What the whole of a case is read as."""
    function = codegen_function(whole(CASES[name].module("float32"), BACKEND, CASES[name].label))
    composite = Composite.of(function)
    return read_computation(composite.result, composite.bound)


@pytest.mark.parametrize("name", CASES)
def test_every_case_is_one_partition_under_its_label(name: str) -> None:
    assert CASES[name].label in labels(candidates(CASES[name].module("float32"), BACKEND)[1])


def test_every_beginning_of_a_chain_is_a_candidate() -> None:
    found = taken(
        lambda emit, x, y: nn.relu(emit(op.add(emit(op.add(emit(op.matmul(x, y)), constant((8,))(x))), x))),
        *((8, 8), (8, 8)),
    )
    assert found == ["matmul", "matmul+add", "matmul+add+add", "matmul+add+add+relu"]


def test_a_bias_runs_along_columns_and_in_nchw_along_rows() -> None:
    assert "column_bias" in computation("rows of a batch").operands
    bottleneck = computation("bottleneck")
    assert "row_bias" in bottleneck.operands and "residual" in bottleneck.operands
    assert {k: bottleneck.sizes[k] for k in ("m", "n", "k", "batch")} == {"m": 16, "n": 16, "k": 8, "batch": 2}
    assert bottleneck.sizes["batch_a"] == 0, "all images share the filters"


def test_an_activation_before_the_residual_and_one_after() -> None:
    found = computation("strided").epilogue
    assert (found.pre.function, found.post.function) == (4, 5)
    assert (found.post.low, found.post.high) == (-1.5, 6.0)


def test_spelled_out_gelus_are_told_apart() -> None:
    assert computation("feed forward").epilogue.pre.function == 2
    assert computation("tanh formula").epilogue.pre.function == 3


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_gelu_in_every_order_of_its_factors(dtype: str) -> None:
    def first(emit: Any, x: Any, y: Any) -> Any:
        wide = emit(op.matmul(x, y))
        error = emit(op.add(emit(op.erf(emit(op.multiply(wide, scalar(0.70710678, x))))), scalar(1, x)))
        return op.multiply(wide, emit(op.multiply(error, scalar(0.5, x))))

    def second(emit: Any, x: Any, y: Any) -> Any:
        wide = emit(op.matmul(x, y))
        error = emit(op.erf(emit(op.divide(wide, scalar(1.41421356, x)))))
        return op.multiply(emit(op.multiply(wide, scalar(0.5, x))), emit(op.add(error, scalar(1, x))))

    for spelled in (first, second):
        assert any(name.count("+") == 5 for name in taken(spelled, (8, 8), (8, 8), dtype=dtype))


def test_what_looks_like_gelu_but_is_not_is_left() -> None:
    def half_as_much(emit: Any, x: Any, y: Any) -> Any:
        wide = emit(op.matmul(x, y))
        error = emit(op.add(emit(op.erf(emit(op.multiply(wide, scalar(0.5, x))))), scalar(1, x)))
        return op.multiply(wide, emit(op.multiply(error, scalar(0.5, x))))

    assert taken(half_as_much, (8, 8), (8, 8)) == ["matmul"]


@pytest.mark.parametrize(
    "build",
    [
        lambda emit, x, y: op.multiply(emit(op.matmul(x, y)), x),
        lambda emit, x, y: op.add(emit(op.matmul(x, y)), constant((8, 1))(x)),
        lambda emit, x, y: op.add(emit(op.matmul(x, y)), constant((3, 8, 8))(x)),
        lambda emit, x, y: op.tanh(emit(op.matmul(x, y))),
    ],
    ids=["product with a tensor", "bias along the rows of a product", "broadcasting addend", "no such activation"],
)
def test_epilogues_that_no_kernel_has_stay_outside(build: Callable[..., Any]) -> None:
    assert taken(build, (8, 8), (8, 8)) == ["matmul"]


def test_a_result_that_is_its_own_addend_stays_outside() -> None:
    def double(emit: Any, x: Any, y: Any) -> Any:
        product = emit(op.matmul(x, y))
        return op.add(product, product)

    assert taken(double, (8, 8), (8, 8)) == ["matmul"]


@pytest.mark.parametrize(
    ("build", "shapes"),
    [
        (lambda emit, x, w: nn.conv2d(x, w, padding=1), ((1, 8, 6, 6), (8, 8, 3, 3))),
        (lambda emit, x, w: nn.conv2d(x, w, strides=2), ((1, 8, 6, 6), (8, 8, 1, 1))),
        (lambda emit, x, w: nn.conv2d(x, w, groups=2), ((1, 8, 6, 6), (8, 4, 1, 1))),
        (lambda emit, x, w: op.matmul(x, w), ((8, 8), (8,))),
        (lambda emit, x, w: op.matmul(x, w), ((2, 1, 8, 8), (1, 3, 8, 8))),
    ],
    ids=["3x3 in NCHW", "stride in NCHW", "groups", "vector", "batches that broadcast"],
)
def test_products_that_no_kernel_has_are_left(build: Callable[..., Any], shapes: tuple[Shape, Shape]) -> None:
    assert taken(build, *shapes) == []


def test_half_precision_needs_rows_of_an_even_number_of_elements() -> None:
    """Copies to shared memory have four bytes at least."""
    product = op.matmul
    assert taken(lambda emit, x, y: product(x, y), (3, 7), (7, 8), dtype="float16") == []
    assert taken(lambda emit, x, y: product(x, y), (3, 6), (6, 10), dtype="float16") == ["matmul"]
    assert taken(lambda emit, x, y: product(x, y), (3, 7), (7, 5), dtype="float32") == ["matmul"]


def test_mixed_and_other_dtypes_are_left() -> None:
    assert taken(lambda emit, x, y: op.matmul(x, y), (8, 8), (8, 8), dtype="float64") == []
    wide = taken(lambda emit, x, y: op.matmul(x, y, out_dtype="float32"), (8, 8), (8, 8), dtype="float16")
    assert wide == []


def test_errors_name_the_reason() -> None:
    x, y = (relax.Var(name, relax.TensorType((8, 8), "float32")) for name in "xy")
    product = relax.Var("product", relax.TensorType((8, 8), "float32"))
    result = relax.Var("result", relax.TensorType((8, 8), "float32"))
    bound = {product: op.matmul(x, y), result: op.tanh(product)}
    with pytest.raises(CodegenError, match=r"no activation of the kernels has the values .* relax\.tanh"):
        read_computation(result, bound)


def test_a_backend_says_what_is_wrong_with_its_settings() -> None:
    with pytest.raises(PluginError, match="float32 or tf32"):
        CutlassBackend(precision="float8", arch="sm_80").configuration()
    settings = [CutlassBackend(p, arch).configuration() for p in ("float32", "tf32") for arch in ("sm_80", "sm_90")]
    assert len({(c["precision"], c["arch"]) for c in settings}) == 4
    assert {c["arch"] for c in settings} == {"sm_80", "sm_90a"}, "kernels for Hopper use what only Hopper has"


def test_without_a_device_an_architecture_has_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from collage.backends.cuda.cutlass import backend as cutlass

    monkeypatch.setattr(cutlass, "device_arch", lambda: None)
    monkeypatch.setattr(cutlass, "compute_capability", lambda: None)
    with pytest.raises(BackendUnavailableError, match="CutlassBackend"):
        CutlassBackend().architecture()
    assert CutlassBackend().availability().reason == "no CUDA device was found"


def test_availability_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from collage.backends.cuda.cutlass import backend as cutlass
    from collage.backends.cuda.cutlass import build as cutlass_build

    monkeypatch.setattr(cutlass, "compute_capability", lambda: "7.5")
    assert "7.5" in CutlassBackend().availability().reason
    monkeypatch.setattr(cutlass, "compute_capability", lambda: "9.0")
    monkeypatch.setattr(cutlass_build, "find_nvcc", lambda: None)
    assert "nvcc was not found" in CutlassBackend().availability().reason


def test_clip_and_relu_are_told_by_their_limits() -> None:
    def epilogue(build: Callable[..., Any]) -> Any:
        _, found = candidates(module_of(build, (8, 8), (8, 8)), BACKEND)
        graph = found[0].sub_graph.graph
        (largest,) = [c for c in found if len(c.sub_graph.inside) == 2]
        bound = {graph.nodes[i].var: graph.nodes[i].expr for i in largest.sub_graph.inside}
        return read_computation(graph.nodes[max(largest.sub_graph.inside)].var, bound).epilogue.pre

    assert epilogue(lambda emit, x, y: nn.relu(emit(op.matmul(x, y)))).function == 1
    relu6 = epilogue(lambda emit, x, y: op.clip(emit(op.matmul(x, y)), 0, 6))
    assert (relu6.function, relu6.low, relu6.high) == (5, 0.0, 6.0)
    assert np.isfinite([relu6.low, relu6.high]).all()
