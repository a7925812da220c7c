"""Folding batch normalisation, and any scale or shift per channel, into the convolution or product before it.

At inference a batch normalisation is x * s + b per channel, with s = gamma / sqrt(var + eps) and b = beta - mean *
s. After a linear operator with a constant weight, s goes into the weight and b joins the bias; elsewhere one
multiplication and one addition remain. The arithmetic is done in float64 and rounded once per constant.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op

from collage.frontend.passes.precision import HALF
from collage.frontend.passes.rewriting import Rule, Scope, call_to
from collage.frontend.values import constant, dtype_of, static_shape, value_of

_CONVOLUTIONS = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d")
_TRANSPOSED = ("relax.nn.conv1d_transpose", "relax.nn.conv2d_transpose", "relax.nn.conv3d_transpose")
_WITH_PADDING = MappingProxyType(
    {"relax.nn.conv1d": op.nn.conv1d, "relax.nn.conv2d": op.nn.conv2d, "relax.nn.conv3d": op.nn.conv3d}
)


def _batch_norm(value: Any, scope: Scope) -> Any:
    """Batch normalisation with constant statistics -> multiply and add, each with one constant per channel."""
    found = _scale_and_shift(value, scope)
    if found is None:
        return None
    data, scale, shift = found
    dtype = dtype_of(data.ty)
    return op.add(op.multiply(data, _rounded(scale, dtype)), _rounded(shift, dtype))


def _batch_norm_into_half(value: Any, scope: Scope) -> Any:
    """Batch normalisation of a linear operator in half precision -> its weight and a bias, in one step.

    By way of a scale in that type each weight would be rounded twice, and all of a channel's off in the same direction.
    """
    found = _scale_and_shift(value, scope)
    if found is None or dtype_of(found[0].ty) not in HALF or not scope.used_once(found[0]):
        return None
    data, scale, shift = found
    linear = scope.definition(data)
    channel = _channel_axis(linear)
    if channel is None or not _per_channel(scale, data, channel):
        return None
    weight = _rounded(_scaled_weight(linear, scale), dtype_of(linear.args[1].ty))
    scaled = relax.Call(linear.op, [linear.args[0], weight], linear.attrs, linear.ty_args)
    return op.add(scaled, _rounded(shift, dtype_of(data.ty)))


def _scale_and_shift(value: Any, scope: Scope) -> tuple[Any, np.ndarray, np.ndarray] | None:
    """Operand of a batch normalisation with constant statistics, and the scale and shift that it comes to."""
    if not isinstance(value, relax.TupleGetItem) or value.index != 0:
        return None
    norm = scope.definition(value.tuple_value)
    if not call_to(norm, "relax.nn.batch_norm") or norm.attrs.training:
        return None
    arrays = [value_of(argument) for argument in norm.args[1:5]]
    if any(array is None for array in arrays):
        return None
    gamma, beta, mean, variance = (np.asarray(array, "float64") for array in arrays)
    scale = (gamma if norm.attrs.scale else 1.0) / np.sqrt(variance + float(norm.attrs.epsilon))
    shift = (beta if norm.attrs.center else 0.0) - mean * scale
    data = norm.args[0]
    shape = static_shape(data.ty)
    if shape is None:
        return None
    extents = [1] * len(shape)
    extents[int(norm.attrs.axis) % len(shape)] = -1
    return data, np.asarray(scale).reshape(extents), np.asarray(shift).reshape(extents)


def _scale_into_weight(value: Any, scope: Scope) -> Any:
    """multiply(linear(x, W) [+ b], s) -> linear(x, W * s) [+ b * s]."""
    data, scale = _with_constant(value, "relax.multiply")
    if scale is None or not scope.used_once(data):
        return None
    linear = scope.definition(data)
    addend = None
    inner, bias = _with_constant(linear, "relax.add")
    if bias is not None:
        if not scope.used_once(inner):
            return None
        linear, addend = scope.definition(inner), bias
    channel = _channel_axis(linear)
    if channel is None or not _per_channel(scale, value, channel) or static_shape(linear.ty) != static_shape(value.ty):
        return None
    if addend is not None and not _per_channel(addend, value, channel):
        return None
    weight = _scaled_weight(linear, np.asarray(scale, "float64"))
    scaled = relax.Call(
        linear.op, [linear.args[0], _rounded(weight, dtype_of(linear.args[1].ty))], linear.attrs, linear.ty_args
    )
    if addend is None:
        return scaled
    return op.add(scaled, _rounded(np.asarray(addend, "float64") * np.asarray(scale, "float64"), dtype_of(value.ty)))


def _join_biases(value: Any, scope: Scope) -> Any:
    """add(linear + b, c) -> linear + (b + c)."""
    data, second = _with_constant(value, "relax.add")
    if second is None or not scope.used_once(data):
        return None
    linear, first = _with_constant(scope.definition(data), "relax.add")
    channel = _channel_axis(scope.definition(linear))
    if channel is None or first is None or static_shape(linear.ty) != static_shape(value.ty):
        return None
    if not (_per_channel(first, value, channel) and _per_channel(second, value, channel)):
        return None
    return op.add(linear, _rounded(np.asarray(first, "float64") + np.asarray(second, "float64"), dtype_of(value.ty)))


def _subtract_constant(value: Any, scope: Scope) -> Any:
    """x - c after a linear operator is a bias; x / c is a scale."""
    if not call_to(value, "relax.subtract", "relax.divide"):
        return None
    data, other = value.args
    array = value_of(other)
    linear = scope.definition(data)
    if call_to(linear, "relax.add"):
        linear = scope.definition(_with_constant(linear, "relax.add")[0])
    channel = _channel_axis(linear)
    if array is None or channel is None or not _per_channel(array, value, channel):
        return None
    exact, dtype = np.asarray(array, "float64"), dtype_of(value.ty)
    if value.op.name == "relax.subtract":
        return op.add(data, _rounded(-exact, dtype))
    return None if (exact == 0).any() else op.multiply(data, _rounded(1.0 / exact, dtype))


def _pad_into_convolution(value: Any, scope: Scope) -> Any:
    """A convolution of something padded with zeros pads by itself."""
    if not call_to(value, *_CONVOLUTIONS):
        return None
    padding = scope.definition(value.args[0])
    if not call_to(padding, "relax.nn.pad") or not scope.used_once(value.args[0]):
        return None
    if padding.attrs.pad_mode != "constant" or float(padding.attrs.pad_value) != 0.0:
        return None
    layout = str(value.attrs.data_layout)
    widths = np.array([int(width) for width in padding.attrs.pad_width]).reshape(-1, 2)
    spatial = [axis for axis, letter in enumerate(layout) if letter not in "NC"]
    others = [axis for axis, letter in enumerate(layout) if letter in "NC"]
    if len(widths) != len(layout) or (widths < 0).any() or widths[others].any():
        return None
    own = np.array([int(width) for width in value.attrs.padding]).reshape(2, -1)
    attributes = {
        name: getattr(value.attrs, name) for name in ("strides", "dilation", "groups", "data_layout", "kernel_layout")
    }
    return _WITH_PADDING[value.op.name](
        padding.args[0],
        value.args[1],
        padding=(own + widths[spatial].T).reshape(-1).tolist(),
        out_layout=value.attrs.out_layout,
        out_dtype=value.attrs.out_dtype,
        **attributes,
    )


def _with_constant(value: Any, operator: str) -> tuple[Any, np.ndarray | None]:
    """The other operand and the constant of a commutative call; (None, None) when it is no such call."""
    if call_to(value, operator):
        for data, other in (tuple(value.args), tuple(value.args)[::-1]):
            array = value_of(other)
            if array is not None and isinstance(data, relax.Var):
                return data, array
    return None, None


def _channel_axis(linear: Any) -> int | None:
    """The axis of the output channels of a floating-point linear operator with a constant weight; else None."""
    if not call_to(linear, *_CONVOLUTIONS, *_TRANSPOSED, "relax.matmul") or value_of(linear.args[1]) is None:
        return None
    if not dtype_of(linear.ty) == dtype_of(linear.args[1].ty) == dtype_of(linear.args[0].ty) or "float" not in dtype_of(
        linear.ty
    ):
        return None
    if linear.op.name == "relax.matmul":
        rank = len(static_shape(linear.ty) or ())
        return rank - 1 if len(static_shape(linear.args[1].ty) or ()) == 2 and rank >= 2 else None
    layout = str(linear.attrs.out_layout)
    return (
        layout.index("C") if layout.isupper() and "C" in layout else None
    )  # channels split in blocks have no axis of their own


def _per_channel(array: np.ndarray, value: Any, channel: int) -> bool:
    """Whether an array that broadcasts to the value has at most one number per channel."""
    shape = static_shape(value.ty) or ()
    if array.ndim > len(shape):
        return False
    extents = (1,) * (len(shape) - array.ndim) + array.shape
    return all(extent == 1 for axis, extent in enumerate(extents) if axis != channel)


def _scaled_weight(linear: Any, scale: np.ndarray) -> np.ndarray:
    weight = np.asarray(value_of(linear.args[1]), "float64")
    flat = scale.reshape(-1)
    if linear.op.name == "relax.matmul":
        return np.asarray(weight * flat)
    layout = str(linear.attrs.kernel_layout)
    outer = layout.index("O")
    extents = [1] * weight.ndim
    if linear.op.name in _CONVOLUTIONS or flat.size == 1:
        extents[outer] = -1
        return np.asarray(weight * flat.reshape(extents))
    # transposed: output channels count within a group, and the groups follow one another along the input channels
    groups, inner = int(linear.attrs.groups), layout.index("I")
    per_input = np.repeat(
        flat.reshape(groups, -1), weight.shape[inner] // groups, axis=0
    )  # (inputs, outputs per group)
    extents[inner], extents[outer] = per_input.shape
    return np.asarray(weight * (per_input if inner < outer else per_input.T).reshape(extents))


def _rounded(array: np.ndarray, dtype: str) -> Any:
    return constant(array, dtype)


#: In this order: a batch normalisation becomes a scale and a shift, which then move into the operator before them.
FOLDINGS: tuple[Rule, ...] = (
    _batch_norm_into_half,
    _batch_norm,
    _subtract_constant,
    _scale_into_weight,
    _join_biases,
    _pad_into_convolution,
)
