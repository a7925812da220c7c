"""Converters of whole layers: matrix products, normalisations, attention, padding, resizing."""

from __future__ import annotations

import numpy as np

from collage.backends.onnx.export.conversion import FLOAT, INTEGER, Conversion, axes_of, axis_of, table
from collage.backends.onnx.export.graph import Value, Values
from collage.backends.onnx.export.windows import check_out_dtype


def _matmul(c: Conversion) -> Value:
    c.require_dtype(FLOAT, 0, 1)
    check_out_dtype(c)
    return c.emit("MatMul", c.value(0), c.value(1))


def _einsum(c: Conversion) -> Value:
    c.require(all(t.dtype in FLOAT for t in c.types(0)), "an einsum of other dtypes than float32")
    subscripts = str(c.attrs.subscripts).replace(" ", "")
    c.require("->" in subscripts and "..." not in subscripts, f"the subscripts {subscripts!r}")
    return c.emit("Einsum", *c.values(0), equation=subscripts)


def _trailing(c: Conversion, axes: tuple[int, ...]) -> bool:
    return sorted(axes) == list(range(c.type(0).rank - len(axes), c.type(0).rank))


def _layer_norm(c: Conversion) -> Value:
    c.require_dtype(FLOAT, 0, 1, 2)
    axes = axes_of(c.attrs.axes, c.type(0).rank)
    c.require(_trailing(c, axes) and list(axes) == sorted(axes), f"axes {axes} are not the last ones in order")
    scale, bias = _affine(c)
    return c.emit("LayerNormalization", c.value(0), scale, bias, axis=min(axes), epsilon=float(c.attrs.epsilon))


def _affine(c: Conversion) -> tuple[Value, Value]:
    """Scale and offset: operands 1 and 2. TVM applies them even where the attributes switch them off."""
    c.require(bool(c.attrs.scale and c.attrs.center), "a normalisation without scale or offset")
    return c.value(1), c.value(2)


def _rms_norm(c: Conversion) -> Value:
    c.require_dtype(FLOAT, 0, 1)
    axes = axes_of(c.attrs.axes, c.type(0).rank)
    c.require(_trailing(c, axes) and list(axes) == sorted(axes), f"axes {axes} are not the last ones in order")
    x = c.value(0)
    mean = c.emit("ReduceMean", c.emit("Mul", x, x), c.graph.ints(axes), keepdims=1)
    root = c.emit("Sqrt", c.emit("Add", mean, c.scalar(float(c.attrs.epsilon), "float32")))
    return c.emit("Mul", c.emit("Div", x, root), c.value(1))


def _batch_norm(c: Conversion) -> Values:
    c.require_dtype(FLOAT, 0, 1, 2, 3, 4)
    c.require(not c.attrs.training, "batch normalisation in training mode")
    c.require(axis_of(c.attrs.axis, c.type(0).rank) == 1, f"the channel axis {c.attrs.axis}")
    scale, bias = _affine(c)
    epsilon = float(c.attrs.epsilon)
    normal = c.emit("BatchNormalization", c.value(0), scale, bias, c.value(3), c.value(4), epsilon=epsilon)
    return normal, c.value(3), c.value(4)


def _group_norm(c: Conversion) -> Value:
    c.require_dtype(FLOAT, 0, 1, 2)
    data, groups = c.type(0), int(c.attrs.num_groups)
    c.require(axis_of(c.attrs.channel_axis, data.rank) == 1, f"the channel axis {c.attrs.channel_axis}")
    c.require(axes_of(c.attrs.axes, data.rank) == tuple(range(2, data.rank)), f"axes {tuple(c.attrs.axes)}")
    scale, bias = _affine(c)
    ones, zeros = (c.graph.constant(np.full(groups, fill, dtype=np.float32)) for fill in (1, 0))
    rows = c.reshape(c.value(0), (data.shape[0], groups, data.size // data.shape[0] // groups))
    normal = c.emit("InstanceNormalization", rows, ones, zeros, epsilon=float(c.attrs.epsilon))
    per_channel = (data.shape[1], *[1] * (data.rank - 2))
    scaled = c.emit("Mul", c.reshape(normal, data.shape), c.reshape(scale, per_channel))
    return c.emit("Add", scaled, c.reshape(bias, per_channel))


def _instance_norm(c: Conversion) -> Value:
    c.require_dtype(FLOAT, 0, 1, 2)
    rank = c.type(0).rank
    c.require(axis_of(c.attrs.channel_axis, rank) == 1, f"the channel axis {c.attrs.channel_axis}")
    c.require(axes_of(c.attrs.axes, rank) == tuple(range(2, rank)), f"axes {tuple(c.attrs.axes)}")
    scale, bias = _affine(c)
    return c.emit("InstanceNormalization", c.value(0), scale, bias, epsilon=float(c.attrs.epsilon))


def _attention(c: Conversion) -> Value:
    """softmax(q k' scale + bias) v over (batch, sequence, heads, depth), as TVM legalises it."""
    c.require_dtype(FLOAT, *range(c.arity))
    c.require(c.attrs.causal_mask is None and c.attrs.window_size is None, "a causal or windowed attention")
    scale = c.attrs.scale
    factor = float(scale) if scale is not None else c.type(0).shape[3] ** -0.5
    query, value = (c.emit("Transpose", c.value(i), perm=[0, 2, 1, 3]) for i in (0, 2))
    key = c.emit("Transpose", c.value(1), perm=[0, 2, 3, 1])
    scores = c.emit("Mul", c.emit("MatMul", query, key), c.scalar(factor, "float32"))
    if c.arity > 3:
        scores = c.emit("Add", scores, c.value(3))
    weighted = c.emit("MatMul", c.emit("Softmax", scores, axis=-1), value)
    return c.emit("Transpose", weighted, perm=[0, 2, 1, 3])


def _pad(c: Conversion) -> Value:
    c.require_dtype((*FLOAT, *INTEGER))
    data, widths = c.type(0), [int(w) for w in c.attrs.pad_width]
    c.require(min(widths, default=0) >= 0, "a negative padding")
    mode = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}.get(str(c.attrs.pad_mode))
    c.require(mode is not None, f"the padding mode {c.attrs.pad_mode}")
    if mode == "reflect":
        fits = all(max(widths[2 * i : 2 * i + 2]) < extent for i, extent in enumerate(data.shape))
        c.require(fits, "a reflection wider than the tensor")
    pads = c.graph.ints([*widths[::2], *widths[1::2]])
    if mode == "constant":
        return c.emit("Pad", c.value(0), pads, c.scalar(float(c.attrs.pad_value), data.dtype), mode=mode)
    return c.emit("Pad", c.value(0), pads, mode=mode)


def _resize2d(c: Conversion) -> Value:
    c.require_dtype(FLOAT)
    c.require(str(c.attrs.layout) == "NCHW", f"layout {c.attrs.layout}")
    c.require(c.result.dtype in FLOAT, f"out_dtype {c.attrs.out_dtype}")
    coordinates = str(c.attrs.coordinate_transformation_mode)
    c.require(
        coordinates in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"), f"coordinates {coordinates}"
    )
    sizes = c.graph.ints(c.result.shape)
    method, rounding = str(c.attrs.method), str(c.attrs.rounding_method)
    if method == "nearest_neighbor":
        nearest = {
            "floor": "floor",
            "ceil": "ceil",
            "round_prefer_floor": "round_prefer_floor",
            "round_prefer_ceil": "round_prefer_ceil",
        }.get(rounding)
        c.require(nearest is not None, f"the rounding method {rounding!r}")
        options = {"mode": "nearest", "nearest_mode": nearest}
    else:
        c.require(method == "linear", f"the method {method}")
        options = {"mode": "linear"}
    return c.emit("Resize", c.value(0), "", "", sizes, coordinate_transformation_mode=coordinates, **options)


CONVERTERS = table(
    ("relax.matmul", _matmul),
    ("relax.einsum", _einsum),
    ("relax.nn.layer_norm", _layer_norm),
    ("relax.nn.rms_norm", _rms_norm),
    ("relax.nn.batch_norm", _batch_norm),
    ("relax.nn.group_norm", _group_norm),
    ("relax.nn.instance_norm", _instance_norm),
    ("relax.nn.attention", _attention),
    ("relax.nn.attention_bias", _attention),
    ("relax.nn.pad", _pad),
    ("relax.image.resize2d", _resize2d),
)
