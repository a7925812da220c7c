"""Rules that give convolutions another layout, and move what follows past transpositions until these meet and cancel.

A `Layout` is where tensors of four or five axes are to lie: in planes (NCHW, NCDHW) or with the channels last (NHWC,
NDHWC). `rules(layout, wanted)` are rewriting rules (`collage.frontend.passes.rewriting`): every convolution or pool
that `wanted` says gets the layout, between two transpositions; elementwise operators, sums, concatenations, pads,
slices, pools and means after the second one are computed before it instead. Everything else stays as it is, with a
transposition before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, tirx
from tvm.relax import op

from collage.frontend.passes.rewriting import Rule, Scope, call_to
from collage.frontend.values import constant, static_shape, value_of


@dataclass(frozen=True)
class Layout:
    """Layouts of data and of kernels by rank, as Relax names them; `last` says where the channels are."""

    data: dict[int, str]
    kernel: dict[int, str]
    last: bool

    def toward(self, rank: int) -> list[int]:
        """The transposition to this layout from the other one."""
        return [0, *range(2, rank), 1] if self.last else [0, rank - 1, *range(1, rank - 1)]

    def away(self, rank: int) -> list[int]:
        """The transposition from this layout to the other one."""
        return PLANES.toward(rank) if self.last else CHANNELS_LAST.toward(rank)


PLANES = Layout({4: "NCHW", 5: "NCDHW"}, {4: "OIHW", 5: "OIDHW"}, last=False)
CHANNELS_LAST = Layout({4: "NHWC", 5: "NDHWC"}, {4: "OHWI", 5: "ODHWI"}, last=True)

_CONVOLUTIONS = ("relax.nn.conv2d", "relax.nn.conv3d")
_POOLS = tuple(f"relax.nn.{kind}_pool{n}d" for kind in ("avg", "max") for n in (2, 3))


def lies_in(value: Any, layout: Layout) -> bool:
    """Whether a value is a convolution or a pool of this layout."""
    rank = rank_of(value)
    data, kernel = layout.data.get(rank), layout.kernel.get(rank)
    if call_to(value, *_CONVOLUTIONS):
        fits = str(value.attrs.data_layout) == data and str(value.attrs.kernel_layout) == kernel
    else:
        fits = call_to(value, *_POOLS) and str(value.attrs.layout) == data
    return fits and str(value.attrs.out_layout) in ("", data)


def other(layout: Layout) -> Layout:
    """Planes for channels last, and the other way round."""
    return PLANES if layout.last else CHANNELS_LAST


def with_layout(value: Any, tensors: Sequence[Any], layout: Layout) -> Any:
    """A convolution or pool in this layout, of tensors that have it."""
    attrs, rank = value.attrs, rank_of(value)
    make = getattr(op.nn, value.op.name.removeprefix("relax.nn."))
    data, kernel = layout.data[rank], layout.kernel[rank]
    if call_to(value, *_CONVOLUTIONS):
        sizes = [[int(n) for n in part] for part in (attrs.strides, attrs.padding, attrs.dilation)]
        return make(*tensors, *sizes, int(attrs.groups), data, kernel, None, attrs.out_dtype)
    sizes = [[int(n) for n in part] for part in (attrs.pool_size, attrs.strides, attrs.padding, attrs.dilation)]
    return make(tensors[0], *sizes, bool(attrs.ceil_mode), bool(attrs.count_include_pad), data)


def rules(layout: Layout, wanted: Callable[[Any], bool]) -> tuple[Rule, ...]:
    """The rules that bring a function into a layout.

    Parameters
    ----------
    wanted
        Of convolutions and pools of the other layout, whether they are to have this one. Pools follow what is before
        them in any case.
    """

    def convert(value: Any, scope: Scope) -> Any:
        if not lies_in(value, other(layout)) or not wanted(value):
            return None
        rank = rank_of(value)
        tensors = [op.permute_dims(tensor, layout.toward(rank)) for tensor in value.args]
        return op.permute_dims(with_layout(value, tensors, layout), layout.away(rank))

    def move(value: Any, scope: Scope) -> Any:
        return _past_transposition(value, scope, layout)

    return convert, move


def rank_of(value: Any) -> int:
    """How many axes a tensor has; 0 for what is none of known shape."""
    return len(static_shape(getattr(value, "ty", None)) or ())


def _past_transposition(value: Any, scope: Scope, layout: Layout) -> Any:
    """f(transposed x) as transposed f(x), where x has the layout."""
    if not call_to(value, *_MOVED):
        return None
    tensors = list(value.args[0].fields) if isinstance(value.args[0], relax.Tuple) else list(value.args)
    ranks = [rank_of(tensor) for tensor in tensors if _transposed(tensor, scope, layout)]
    if not ranks:
        return None
    axes = layout.away(ranks[0])
    moved = _MOVED[value.op.name](value, [_before(tensor, axes, scope, layout) for tensor in tensors], axes, layout)
    if moved is None:
        return None
    # A mean that keeps no spatial axis has nothing left to transpose.
    return op.permute_dims(moved, axes) if rank_of(value) == len(axes) else moved


def _transposed(tensor: Any, scope: Scope, layout: Layout) -> bool:
    """Whether a tensor is one of the layout, transposed away from it."""
    source = scope.definition(tensor)
    if not call_to(source, "relax.permute_dims") or source.attrs.axes is None or rank_of(tensor) < 4:
        return False
    return [int(axis) for axis in source.attrs.axes] == layout.away(rank_of(tensor))


def _before(tensor: Any, axes: list[int], scope: Scope, layout: Layout) -> Any:
    """A tensor as it is before its transposition, or a constant as it would be; None for all others."""
    if _transposed(tensor, scope, layout):
        return scope.definition(tensor).args[0] if rank_of(tensor) == len(axes) else None
    array = value_of(tensor)
    if array is None or array.ndim > len(axes):
        return None
    full = array.reshape((1,) * (len(axes) - array.ndim) + array.shape)
    return constant(full.transpose([axes.index(axis) for axis in range(len(axes))]))


def _elementwise(value: Any, moved: list[Any], axes: list[int], layout: Layout) -> Any:
    return relax.Call(value.op, [moved[0], *value.args[1:]], value.attrs, value.ty_args)


def _binary(value: Any, moved: list[Any], axes: list[int], layout: Layout) -> Any:
    return None if None in moved else relax.Call(value.op, moved, value.attrs, value.ty_args)


def _concat(value: Any, moved: list[Any], axes: list[int], layout: Layout) -> Any:
    return None if None in moved else op.concat(moved, axes[int(value.attrs.axis) % len(axes)])


def _pad(value: Any, moved: list[Any], axes: list[int], layout: Layout) -> Any:
    width = [int(w) for w in value.attrs.pad_width]
    wanted = [w for axis in range(len(axes)) for w in width[2 * axes.index(axis) : 2 * axes.index(axis) + 2]]
    return op.nn.pad(moved[0], wanted, str(value.attrs.pad_mode), float(value.attrs.pad_value))


def _slice(value: Any, moved: list[Any], axes: list[int], layout: Layout) -> Any:
    wanted = [tirx.IntImm("int64", axes[int(axis) % len(axes)]) for axis in value.args[1].fields]
    return relax.Call(value.op, [moved[0], relax.Tuple(wanted), *value.args[2:]], value.attrs, value.ty_args)


def _mean(value: Any, moved: list[Any], axes: list[int], layout: Layout) -> Any:
    """Over any axes, as long as those that are left keep their order."""
    rank, keeps = len(axes), bool(value.attrs.keepdims)
    over = [int(axis) % rank for axis in value.attrs.axis or range(rank)]
    left = [axes[axis] for axis in range(rank) if axis not in over]
    return op.mean(moved[0], sorted(axes[axis] for axis in over), keeps) if keeps or left == sorted(left) else None


def _pool(value: Any, moved: list[Any], axes: list[int], layout: Layout) -> Any:
    return with_layout(value, moved, layout) if lies_in(value, other(layout)) else None


_MOVED: dict[str, Callable[[Any, list[Any], list[int], Layout], Any]] = {
    **dict.fromkeys((f"relax.nn.{name}" for name in ("relu", "silu", "leakyrelu", "gelu")), _elementwise),
    **dict.fromkeys((f"relax.{name}" for name in ("clip", "sigmoid", "tanh", "exp", "erf", "sqrt")), _elementwise),
    **dict.fromkeys(("relax.add", "relax.subtract", "relax.multiply", "relax.divide"), _binary),
    **dict.fromkeys(("relax.maximum", "relax.minimum"), _binary),
    **dict.fromkeys(_POOLS, _pool),
    **{"relax.concat": _concat, "relax.mean": _mean, "relax.nn.pad": _pad, "relax.strided_slice": _slice},
}
