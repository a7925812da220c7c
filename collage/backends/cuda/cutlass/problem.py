"""From the operators of a CUTLASS partition to one GEMM or implicit GEMM with its epilogue.

A matrix product of (…, m, k) with (k, n) is one GEMM of all rows; with (…, k, n) a batch of them. A 1x1 convolution of
stride 1 is a GEMM in either layout: over all pixels in NHWC, and in NCHW one per image, (channels out, channels in) by
(channels in, pixels), whose bias runs along the rows. Other convolutions are implicit GEMMs, in NHWC alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from collage.backends.cuda.cutlass.epilogue import Epilogue, read_epilogue
from collage.backends.library.activation import Bound
from collage.backends.library.composite import dtype_of, static_shape
from collage.errors import CodegenError

_PRODUCTS = frozenset({"relax.matmul", "relax.nn.conv2d"})
_DTYPES = ("float16", "bfloat16", "float32")
#: CUTLASS counts in 32 bits; a batch is the third dimension of the grid.
_LIMIT, _BATCH_LIMIT = 2**31, 2**16
#: Extent of a convolution's filter: which of its rows lie in the image is kept in the bits of a word.
_WINDOW_LIMIT = 32


@dataclass(frozen=True)
class Computation:
    """What one kernel is to compute.

    Attributes
    ----------
    kind
        "gemm" or "conv2d".
    dtype
        Of all operands and of the result.
    column_major
        Whether the rows of B lie one element apart, as transposed weights have them; of a GEMM.
    sizes
        The fields of `Problem` in collage/runtime/cuda/cutlass/kernels/kernel.h, without the activations.
    operands
        "a", "b" and, where there are, "column_bias", "row_bias", "residual" -> Relax expression.
    epilogue
        The activations, and what they are applied to.
    """

    kind: str
    dtype: str
    column_major: bool
    sizes: Mapping[str, int]
    operands: Mapping[str, Any]
    epilogue: Epilogue


@dataclass(frozen=True)
class _Product:
    """The product alone; `bias_axis` says along which of D's axes a bias runs, and in which shapes it may come."""

    kind: str
    a: Any
    b: Any
    sizes: Mapping[str, int]
    bias_axis: str
    bias_shape: tuple[int, ...]
    column_major: bool = False


def read_computation(result: Any, bound: Bound) -> Computation:
    """What a partition whose last value is `result` computes.

    Parameters
    ----------
    bound
        Variable inside the partition -> the call that it is bound to.

    Raises
    ------
    CodegenError
        No kernel computes it; the message says why.
    """
    epilogue = read_epilogue(result, bound, _PRODUCTS, lambda addend, product: _is_bias(addend, product, bound))
    product = _read_product(bound[epilogue.product], bound)
    operands = {"a": product.a, "b": product.b, product.bias_axis: epilogue.bias, "residual": epilogue.residual}
    operands = {name: value for name, value in operands.items() if value is not None}
    dtypes = {dtype_of(value) for value in (*operands.values(), epilogue.product, result)}
    if len(dtypes) != 1 or not dtypes <= set(_DTYPES):
        raise CodegenError(f"the kernels take operands of one dtype of {', '.join(_DTYPES)}, not {sorted(dtypes)}")
    if static_shape(result) != static_shape(epilogue.product):
        raise CodegenError("the epilogue broadcasts the product")
    if any(prod(static_shape(v) or (0,)) >= _LIMIT for v in (*operands.values(), result)):
        raise CodegenError("an operand has 2^31 elements or more")
    if product.sizes.get("batch", 1) >= _BATCH_LIMIT or any(v == 0 for v in (static_shape(result) or (0,))):
        raise CodegenError("the batch is too large, or the result is empty")
    return Computation(product.kind, dtypes.pop(), product.column_major, product.sizes, operands, epilogue)


def _is_bias(addend: Any, product: Any, bound: Bound) -> bool:
    shape = static_shape(addend)
    if shape is None:
        return False
    wanted = _read_product(bound[product], bound).bias_shape
    padded = (1,) * (len(wanted) - len(shape)) + shape
    return padded == wanted


def _read_product(call: Any, bound: Bound) -> _Product:
    return _matmul(call, bound) if call.op.name == "relax.matmul" else _convolution(call)


def _shape(value: Any) -> tuple[int, ...]:
    shape = static_shape(value)
    if shape is None:
        raise CodegenError("a shape is not known")
    return shape


def _matmul(call: Any, bound: Bound) -> _Product:
    a, b = call.args
    transposed = b in bound
    if transposed:
        (b,) = _last_axes_swapped(bound[b])
    left, right = _shape(a), _shape(b)
    if len(left) < 2 or len(right) < 2:
        raise CodegenError("a product with a vector")
    (m, k), n = left[-2:], right[-2] if transposed else right[-1]
    batches = (left[:-2], right[:-2])
    if prod(batches[1]) == 1:
        m, batch, batch_a, batch_b = prod(left[:-1]), 1, 0, 0
    elif batches[0] == batches[1]:
        batch, batch_a, batch_b = prod(batches[1]), m * k, k * n
    elif prod(batches[0]) == 1:
        batch, batch_a, batch_b = prod(batches[1]), 0, k * n
    else:
        raise CodegenError(f"a product that broadcasts {batches[0]} with {batches[1]}")
    if batch == 1:
        batch_a = batch_b = 0
    sizes = _gemm_sizes(m, n, k, batch, ldb=k if transposed else n, batch_a=batch_a, batch_b=batch_b)
    bias = (1,) * (len(_shape(call)) - 1) + (n,)
    return _Product("gemm", a, b, sizes, "column_bias", bias, transposed)


def _last_axes_swapped(call: Any) -> tuple[Any]:
    if call.op.name != "relax.permute_dims":
        raise CodegenError(f"{call.op.name} cannot come before a product in one kernel")
    rank = len(_shape(call))
    axes = [int(axis) for axis in call.attrs.axes] if call.attrs.axes is not None else list(range(rank))[::-1]
    if rank < 2 or axes != [*range(rank - 2), rank - 1, rank - 2]:
        raise CodegenError(f"a transposition by {axes}, which is not of the last two axes")
    return (call.args[0],)


def _gemm_sizes(m: int, n: int, k: int, batch: int, *, ldb: int, batch_a: int, batch_b: int) -> dict[str, int]:
    per_matrix = m * n if batch > 1 else 0
    sizes = {"m": m, "n": n, "k": k, "batch": batch, "lda": k, "ldb": ldb, "ldr": n, "ldd": n}
    return {**sizes, "batch_a": batch_a, "batch_b": batch_b, "batch_r": per_matrix, "batch_d": per_matrix}


def _convolution(call: Any) -> _Product:
    attrs, (x, weight) = call.attrs, call.args
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout))
    if int(attrs.groups) != 1:
        raise CodegenError("a grouped convolution")
    if str(attrs.out_layout) not in ("", layouts[0]):
        raise CodegenError("a convolution that changes the layout")
    if layouts == ("NHWC", "OHWI"):
        return _nhwc(call, x, weight)
    if layouts != ("NCHW", "OIHW"):
        raise CodegenError(f"a convolution in {layouts[0]} with filters in {layouts[1]}")
    images, channels, height, width = _shape(x)
    filters, _, *window = _shape(weight)
    if not _is_pointwise(attrs, window):
        raise CodegenError("a convolution in NCHW that is not 1x1 at stride 1: implicit GEMM needs NHWC")
    pixels = height * width
    batch_b = channels * pixels if images > 1 else 0
    sizes = _gemm_sizes(filters, pixels, channels, images, ldb=pixels, batch_a=0, batch_b=batch_b)
    return _Product("gemm", weight, x, sizes, "row_bias", (1, filters, 1, 1))


def _is_pointwise(attrs: Any, window: list[int]) -> bool:
    ones = all(int(s) == 1 for s in attrs.strides)
    return window == [1, 1] and ones and all(int(p) == 0 for p in attrs.padding)


def _nhwc(call: Any, x: Any, weight: Any) -> _Product:
    attrs = call.attrs
    images, height, width, channels = _shape(x)
    filters, *window, _ = _shape(weight)
    _, out_height, out_width, _ = _shape(call)
    if max(window) > _WINDOW_LIMIT:
        raise CodegenError(f"a filter of {window[0]}x{window[1]} pixels: the kernels take up to {_WINDOW_LIMIT}")
    pixels = images * out_height * out_width
    bias = (1, 1, 1, filters)
    if _is_pointwise(attrs, window):
        sizes = _gemm_sizes(pixels, filters, channels, 1, ldb=channels, batch_a=0, batch_b=0)
        return _Product("gemm", x, weight, sizes, "column_bias", bias, column_major=True)
    # Rows and columns beyond the image are zeros on every side; only where they begin has to be said.
    sizes = {
        **_gemm_sizes(pixels, filters, channels * prod(window), 1, ldb=channels * prod(window), batch_a=0, batch_b=0),
        **{"images": images, "height": height, "width": width, "channels": channels},
        **{"filter_height": window[0], "filter_width": window[1], "out_height": out_height, "out_width": out_width},
        **{"pad_height": int(attrs.padding[0]), "pad_width": int(attrs.padding[1])},
        **{"stride_height": int(attrs.strides[0]), "stride_width": int(attrs.strides[1])},
        **{"dilation_height": int(attrs.dilation[0]), "dilation_width": int(attrs.dilation[1])},
    }
    return _Product("conv2d", x, weight, sizes, "column_bias", bias)
