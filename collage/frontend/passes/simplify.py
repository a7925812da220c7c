"""Local rules that leave fewer spellings of the same thing: calls that change nothing go, synonyms become one
operator.

Shapes are static, so everything that only renames the extents of a tensor (`expand_dims`, `squeeze`, `flatten`) is
a `reshape` to a known shape.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.relax import op

from collage.frontend.passes.rewriting import Rule, Scope, call_to, leaves, rebuilt
from collage.frontend.values import constant, dtype_of, static_shape, value_of

_COMMUTATIVE = ("relax.add", "relax.multiply", "relax.maximum", "relax.minimum")
_COMPARISONS = (
    "relax.equal",
    "relax.not_equal",
    "relax.less",
    "relax.less_equal",
    "relax.greater",
    "relax.greater_equal",
)
_BROADCASTING = (*_COMMUTATIVE, *_COMPARISONS, "relax.subtract", "relax.divide", "relax.power", "relax.where")
_NORMS = ("relax.nn.layer_norm", "relax.nn.instance_norm", "relax.nn.group_norm")
_RESHAPES = ("relax.reshape", "relax.expand_dims", "relax.squeeze", "relax.flatten", "relax.nn.batch_flatten")


def _projection(value: Any, scope: Scope) -> Any:
    """A field of a tuple that is known."""
    if isinstance(value, relax.TupleGetItem):
        source = (
            value.tuple_value if isinstance(value.tuple_value, relax.Tuple) else scope.definition(value.tuple_value)
        )
        if isinstance(source, relax.Tuple):
            return source.fields[value.index]
    return None


def _bound_tuple(value: Any, scope: Scope) -> Any:
    """Each reader of a bound tuple has the tuple to itself, inline: then producers fuse with one reader or another."""
    if not isinstance(value, (relax.Call, relax.Tuple)):
        return None
    inlined = rebuilt(value, lambda leaf: defined if _is_tuple(defined := scope.definition(leaf)) else leaf)
    return inlined if any(_is_tuple(scope.definition(leaf)) for leaf in leaves(value)) else None


def _is_tuple(expression: Any) -> bool:
    return isinstance(expression, relax.Tuple)


def _dropout(value: Any, scope: Scope) -> Any:
    """At inference dropout gives its input."""
    if isinstance(value, relax.TupleGetItem) and value.index == 0:
        source = scope.definition(value.tuple_value)
        if call_to(source, "relax.nn.dropout"):
            return source.args[0]
    return None


def _reshape(value: Any, scope: Scope) -> Any:
    """One reshape, to a static shape, for any chain of them; none when the shape is the same."""
    shape = static_shape(value.ty) if call_to(value, *_RESHAPES) else None
    if shape is None:
        return None
    data = value.args[0]
    if static_shape(data.ty) == shape:
        return data
    known = value_of(data)
    if known is not None:
        return constant(known.reshape(shape))
    inner = scope.definition(data)
    if call_to(inner, *_RESHAPES):
        return op.reshape(inner.args[0], shape)
    return None if value.op.name == "relax.reshape" and _is_shape(value.args[1]) else op.reshape(data, shape)


def _is_shape(expression: Any) -> bool:
    return isinstance(expression, relax.ShapeExpr) and all(
        isinstance(extent, tirx.IntImm) for extent in expression.values
    )


def _same_type(value: Any, scope: Scope) -> Any:
    """A cast, broadcast, slice or padding whose result has the type of its argument and no room to differ."""
    if call_to(value, "relax.astype", "relax.broadcast_to") and _types_agree(value, value.args[0]):
        return value.args[0]
    if call_to(value, "relax.nn.pad") and not any(int(width) for width in value.attrs.pad_width):
        return value.args[0]
    if call_to(value, "relax.strided_slice") and _types_agree(value, value.args[0]):
        steps = value.args[4] if len(value.args) > 4 else None
        if steps is None or all(int(step) == 1 for step in steps.fields):
            return value.args[0]
    return None


def _concat(value: Any, scope: Scope) -> Any:
    """What has no elements adds nothing, and one tensor is what it is.

    TVM 0.27 writes constants without elements to a file that it cannot read.
    """
    if not call_to(value, "relax.concat") or not isinstance(value.args[0], relax.Tuple):
        return None
    fields = list(value.args[0].fields)
    kept = [field for field in fields if 0 not in (static_shape(field.ty) or ())] or fields[:1]
    if len(kept) == 1:
        return kept[0] if _types_agree(value, kept[0]) else None
    return op.concat(kept, value.attrs.axis) if len(kept) < len(fields) else None


def _split(value: Any, scope: Scope) -> Any:
    """Of a split that gives tensors without elements, slices of the others: TVM divides by its extents."""
    shapes = [static_shape(field) or () for field in value.ty.fields] if call_to(value, "relax.split") else []
    if not any(0 in shape for shape in shapes):
        return None
    axis, begin, parts = int(value.attrs.axis), 0, []
    for shape, field in zip(shapes, value.ty.fields, strict=True):
        end = begin + shape[axis]
        empty = constant(np.zeros(shape, dtype_of(field)))
        parts.append(empty if 0 in shape else op.strided_slice(value.args[0], [axis], [begin], [end]))
        begin = end
    return relax.Tuple(parts)


def _types_agree(left: Any, right: Any) -> bool:
    shape = static_shape(left.ty)
    return shape is not None and shape == static_shape(right.ty) and dtype_of(left.ty) == dtype_of(right.ty)


def _permutation(value: Any, scope: Scope) -> Any:
    """Transpositions in a row are one; one that moves no extent other than 1 is a reshape."""
    if not call_to(value, "relax.permute_dims"):
        return None
    data = value.args[0]
    axes = _axes(value)
    known = value_of(data)
    if known is not None:
        return constant(known.transpose(axes))
    inner = scope.definition(data)
    if call_to(inner, "relax.permute_dims"):
        first = _axes(inner)
        return op.permute_dims(inner.args[0], [first[axis] for axis in axes])
    shape = static_shape(data.ty)
    if shape is None:
        return None
    moved = [axis for axis in axes if shape[axis] != 1]
    return op.reshape(data, tuple(shape[axis] for axis in axes)) if moved == sorted(moved) else None


def _axes(value: Any) -> list[int]:
    rank = len(static_shape(value.ty) or ())
    if value.attrs.axes is None:
        return list(range(rank))[::-1]
    return [int(axis) % rank for axis in value.attrs.axes]


def _clamp(value: Any, scope: Scope) -> Any:
    """`relu6` is a `clip`; a `clip` without an upper bound and with lower bound 0 is a `relu`."""
    if call_to(value, "relax.nn.relu6"):
        return op.clip(value.args[0], 0.0, 6.0)
    if call_to(value, "relax.clip"):
        lower, upper = (float(bound.value) for bound in value.args[1:3])
        if lower == 0 and math.isinf(upper) and "float" in dtype_of(value.ty):
            return op.nn.relu(value.args[0])
    return None


def _neutral(value: Any, scope: Scope) -> Any:
    """Adding 0, subtracting 0, multiplying or dividing by 1, when the shape stays."""
    if call_to(value, "relax.add", "relax.subtract", "relax.multiply", "relax.divide"):
        neutral = 0 if value.op.name in ("relax.add", "relax.subtract") else 1
        commutes = value.op.name in ("relax.add", "relax.multiply")
        pairs = [tuple(value.args)] + ([tuple(value.args)[::-1]] if commutes else [])
        for data, other in pairs:
            array = value_of(other)
            if array is not None and array.size and (array == neutral).all() and _types_agree(value, data):
                return data
    return None


def _zero(value: Any, scope: Scope) -> Any:
    """An integer times 0 is 0: exporters tie an input that is not read to a result in this way."""
    shape = static_shape(value.ty) if call_to(value, "relax.multiply") else None
    if shape is None or "int" not in dtype_of(value.ty):
        return None
    known = [array for array in map(value_of, value.args) if array is not None]
    zero = any(array.size and not array.any() for array in known)
    return constant(np.zeros(shape, dtype_of(value.ty))) if zero else None


def _constant_last(value: Any, scope: Scope) -> Any:
    """The constant of a commutative operator is its second argument."""
    if call_to(value, *_COMMUTATIVE) and value_of(value.args[0]) is not None and value_of(value.args[1]) is None:
        return relax.Call(value.op, [value.args[1], value.args[0]], value.attrs, value.ty_args)
    return None


def _take(value: Any, scope: Scope) -> Any:
    """One mode of `take`, which covers ONNX's negative indices and never reads out of bounds."""
    if call_to(value, "relax.take") and str(value.attrs.mode) == "fast":
        return op.take(value.args[0], value.args[1], value.attrs.axis, mode="wrap")
    return None


def _broadcast(value: Any, scope: Scope) -> Any:
    """What an elementwise operator broadcasts by itself needs no `broadcast_to` or `full_like` before it."""
    shape = static_shape(value.ty) if call_to(value, *_BROADCASTING) else None
    if shape is None:
        return None
    arguments = [_narrow(argument, scope) for argument in value.args]
    shapes = [static_shape(argument.ty) for argument in arguments]
    if all(new.same_as(old) for new, old in zip(arguments, value.args, strict=True)) or None in shapes:
        return None
    if np.broadcast_shapes(*[known for known in shapes if known is not None]) != shape:
        return None
    return relax.Call(value.op, arguments, value.attrs, value.ty_args)


def _narrow(argument: Any, scope: Scope) -> Any:
    source = scope.definition(argument)
    if call_to(source, "relax.broadcast_to"):
        return source.args[0]
    if call_to(source, "relax.full", "relax.full_like"):
        filling = source.args[1]
        return filling if dtype_of(filling.ty) == dtype_of(argument.ty) else argument
    return argument


def _tile(value: Any, scope: Scope) -> Any:
    """Along each axis that is repeated, a look-up of known places.

    TVM 0.27 compiles `tile` of several axes to wrong numbers where the processor has wide vectors (docs/TVM.md).
    """
    shape = static_shape(value.args[0].ty) if call_to(value, "relax.tile") else None
    if shape is None:
        return None
    repeats = [int(r) for r in value.attrs.repeats]
    rank = max(len(shape), len(repeats))
    extents = (1,) * (rank - len(shape)) + tuple(shape)
    result = value.args[0] if extents == tuple(shape) else op.reshape(value.args[0], extents)
    for axis, times in enumerate([1] * (rank - len(repeats)) + repeats):
        if times != 1:
            places = np.tile(np.arange(extents[axis], dtype="int64"), times)
            result = op.take(result, constant(places), axis)
    return result


def _norm(value: Any, scope: Scope) -> Any:
    """A normalisation in bfloat16 -> between conversions, in float32: as ONNX defines it (`stash_type`), and the only
    one that TVM 0.27 has kernels for.
    """
    if not call_to(value, *_NORMS) or dtype_of(value.args[0].ty) != "bfloat16":
        return None
    wide = [op.astype(argument, "float32") for argument in value.args]
    return op.astype(relax.Call(value.op, wide, value.attrs, value.ty_args), "bfloat16")


#: In no particular order: they are applied until none applies.
SIMPLIFICATIONS: tuple[Rule, ...] = (
    _projection,
    _bound_tuple,
    _dropout,
    _reshape,
    _same_type,
    _concat,
    _split,
    _permutation,
    _clamp,
    _neutral,
    _zero,
    _constant_last,
    _take,
    _broadcast,
    _tile,
    _norm,
)
