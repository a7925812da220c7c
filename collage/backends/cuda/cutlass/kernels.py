"""The CUTLASS kernels that there are: tile shapes for each dtype, as the few lines of CUDA that instantiate them.

A kernel is compiled for dtype, layout of B, alignments and tile; extents, bias, residual and activations are arguments
(collage/runtime/cuda/cutlass/kernels). The tiles are those of TVM's and CUTLASS's own generators that are furthest
apart: a large one for products that fill the device, a small one for those that do not, and one that divides k as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from collage.backends.cuda.cutlass.problem import Computation

_ELEMENTS = {"float16": "cutlass::half_t", "bfloat16": "cutlass::bfloat16_t", "float32": "float"}
#: How a product is computed -> CUTLASS's operator class, and the shape of one instruction.
_MATH = {
    "simt": ("cutlass::arch::OpClassSimt", (1, 1, 1)),
    "tf32": ("cutlass::arch::OpClassTensorOp", (16, 8, 8)),
    "half": ("cutlass::arch::OpClassTensorOp", (16, 8, 16)),
}
Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Tiling:
    """Threadblock and warp tile (m, n, k), stages of the pipeline, and whether k is divided over multiprocessors."""

    tile: Shape
    warp: Shape
    stages: int
    stream_k: bool = False


_GEMM_SM80 = {
    "simt": (
        Tiling((128, 128, 8), (32, 64, 8), 4),
        Tiling((64, 64, 8), (32, 64, 8), 5),
        Tiling((64, 64, 8), (32, 64, 8), 5, stream_k=True),
    ),
    "tf32": (
        Tiling((128, 128, 16), (64, 64, 16), 4),
        Tiling((64, 64, 32), (32, 32, 32), 5),
        Tiling((64, 64, 32), (32, 32, 32), 5, stream_k=True),
    ),
    "half": (
        Tiling((128, 128, 32), (64, 64, 32), 4),
        Tiling((64, 64, 64), (32, 32, 64), 5),
        Tiling((64, 64, 64), (32, 32, 64), 5, stream_k=True),
    ),
}
#: Threadblock tile, cluster, schedule, and whether k is divided over multiprocessors.
_GEMM_SM90 = (
    ((128, 256, 64), (2, 1, 1), "Cooperative", False),
    ((64, 128, 64), (1, 1, 1), "Pingpong", False),
    ((128, 128, 64), (1, 1, 1), "Cooperative", True),
)
_CONV_SM80 = {
    "simt": (Tiling((128, 128, 8), (32, 64, 8), 4), Tiling((64, 64, 8), (32, 64, 8), 5)),
    "tf32": (Tiling((128, 128, 16), (64, 64, 16), 4), Tiling((64, 64, 32), (32, 32, 32), 5)),
    "half": (Tiling((128, 128, 32), (64, 64, 32), 4), Tiling((64, 64, 64), (32, 32, 64), 5)),
}


@dataclass(frozen=True)
class Kernel:
    """One kernel: `source` is its translation unit, without the templates that it includes."""

    name: str
    source: str


def kernels_for(computation: Computation, arch: str, precision: str) -> tuple[Kernel, ...]:
    """The kernels worth trying, none when the alignment suits none.

    Parameters
    ----------
    arch
        Such as "sm_80" or "sm_90a".
    precision
        Of float32 products, "float32" or "tf32".
    """
    half = computation.dtype != "float32"
    math = "half" if half else "tf32" if precision == "tf32" else "simt"
    n, k = computation.sizes["n"], computation.sizes["k"]
    if computation.kind == "conv2d":
        aligned = _aligned(math, computation.sizes["channels"]), _result_aligned(math, n)
        return tuple(_conv_sm80(computation.dtype, math, t, aligned) for t in _CONV_SM80[math] if all(aligned))
    operands = _aligned(math, k), _aligned(math, k if computation.column_major else n)
    if not all(operands):
        return ()
    layout, whole = computation.column_major, half and k % 8 == n % 8 == 0
    found = [_gemm_sm90(computation.dtype, layout, *parts) for parts in _GEMM_SM90 if whole and arch == "sm_90a"]
    # Beside the Hopper kernels, one of the others: for small products, and operands that tensor maps cannot describe.
    tilings = _GEMM_SM80[math][1:2] if found else _GEMM_SM80[math]
    alignments = (*operands, _result_aligned(math, n))
    return (*found, *(_gemm_sm80(computation.dtype, layout, math, t, alignments) for t in tilings))


def _aligned(math: str, extent: int) -> int:
    """Elements that are loaded at once, 0 when they cannot be: copies to shared memory have 4 bytes at least."""
    wide, narrow = {"simt": (1, 1), "tf32": (4, 1), "half": (8, 2)}[math]
    return wide if extent % wide == 0 else narrow if extent % narrow == 0 else 0


def _result_aligned(math: str, extent: int) -> int:
    wide = {"simt": 1, "tf32": 4, "half": 8}[math]
    return wide if extent % wide == 0 else 1


def _gemm_sm80(dtype: str, column_major: bool, math: str, tiling: Tiling, aligned: tuple[int, ...]) -> Kernel:
    parts = [_ELEMENTS[dtype], _layout(column_major), *_tiled(math, tiling), *map(str, aligned)]
    divided = "true" if tiling.stream_k else "false"
    source = _unit("gemm_sm80.cuh", f"GemmSm80Parts<{', '.join([*parts, divided])}>", f"GemmSm80<Parts, {divided}>")
    return Kernel(_name("gemm_sm80", dtype, math, _order(column_major), tiling, aligned), source)


def _conv_sm80(dtype: str, math: str, tiling: Tiling, aligned: tuple[int, ...]) -> Kernel:
    parts = [_ELEMENTS[dtype], *_tiled(math, tiling), *map(str, aligned)]
    source = _unit("conv_sm80.cuh", f"ConvSm80Parts<{', '.join(parts)}>", f"ConvSm80<Parts, {_ELEMENTS[dtype]}>")
    return Kernel(_name("conv_sm80", dtype, math, "nhwc", tiling, aligned), source)


def _gemm_sm90(dtype: str, column_major: bool, tile: Shape, cluster: Shape, schedule: str, stream_k: bool) -> Kernel:
    output = "TmaWarpSpecialized" + ("Cooperative" if schedule == "Cooperative" else "")
    parts = [
        *(_ELEMENTS[dtype], _layout(column_major), _cute(tile), _cute(cluster)),
        f"cutlass::gemm::KernelTmaWarpSpecialized{schedule}",
        f"cutlass::epilogue::{output}",
        "cutlass::gemm::StreamKScheduler" if stream_k else "cutlass::gemm::PersistentScheduler",
    ]
    extents = "_".join("x".join(map(str, shape)) for shape in (tile, cluster))
    name = f"gemm_sm90_{dtype}_{_order(column_major)}_{extents}_{schedule.lower()}{'_streamk' * stream_k}"
    return Kernel(name, _unit("gemm_sm90.cuh", f"GemmSm90Parts<{', '.join(parts)}>", "GemmSm90<Parts>"))


def _name(template: str, dtype: str, math: str, order: str, tiling: Tiling, aligned: tuple[int, ...]) -> str:
    extents = "_".join("x".join(map(str, shape)) for shape in (tiling.tile, tiling.warp))
    alignments = "".join(map(str, aligned))
    return f"{template}_{dtype}_{math}_{order}_{extents}_{tiling.stages}_a{alignments}{'_streamk' * tiling.stream_k}"


def _order(column_major: bool) -> str:
    return "column" if column_major else "row"


def _layout(column_major: bool) -> str:
    return "cutlass::layout::ColumnMajor" if column_major else "cutlass::layout::RowMajor"


def _tiled(math: str, tiling: Tiling) -> list[str]:
    operator_class, instruction = _MATH[math]
    shapes = [f"cutlass::gemm::GemmShape<{m}, {n}, {k}>" for m, n, k in (tiling.tile, tiling.warp, instruction)]
    return [operator_class, "cutlass::arch::OpMultiplyAdd", *shapes, str(tiling.stages)]


def _cute(shape: Shape) -> str:
    return f"cute::Shape<{', '.join(f'cute::_{extent}' for extent in shape)}>"


def _unit(header: str, parts: str, run: str) -> str:
    return (
        f'#include "{header}"\n\n'
        f"using Parts = collage_cutlass::{parts};\n"
        f"using Run = collage_cutlass::{run};\n"
        "COLLAGE_CUTLASS_LIBRARY(Run)\n"
    )
