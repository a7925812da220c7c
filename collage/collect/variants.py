"""Variants: the same operators on other shapes, as training data for cost models around a network's own candidates.

A change renames extents: every extent 128 of inputs, weights, target shapes and groups becomes 64, say, and the shapes
in between follow by Relax's own type inference. Renaming keeps all equalities between extents; what it breaks besides
(a product, a sum, a residual connection across a stride) inference refuses, and such a change is no variant. Several
extents may be renamed by one factor, which is how products and strides survive. Windows of convolutions keep their
extents, and so do extents under 4, which are windows, colours and broadcasting more often than sizes.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from collage.frontend.values import static_shape
from collage.graph.description import attributes

#: What extents are multiplied by.
FACTORS = (0.25, 0.5, 0.75, 1.5, 2.0)
#: Batch sizes in place of 1.
BATCHES = (2, 4)
_SMALLEST = 4
#: Of all inputs, weights and intermediate results together: 128 MB of float32.
_MOST_ELEMENTS = 1 << 25
_WINDOWED = "relax.nn.conv"
#: What type inference raises about shapes that do not fit (TVM's own errors are RuntimeErrors).
_ILLEGAL = (ValueError, TypeError, RuntimeError)


@dataclass(frozen=True)
class Change:
    """What is renamed.

    Attributes
    ----------
    extents
        (old, new) pairs.
    batch
        Takes the place of a leading 1 of inputs and target shapes; 1 leaves it.
    """

    extents: tuple[tuple[int, int], ...]
    batch: int = 1


def propose(module: Any, rng: random.Random) -> Change:
    """A random change for a sub-graph's module; whether it is a legal one is known once it has been tried."""
    extents = _extents(module["main"])
    chosen = rng.sample(extents, min(len(extents), rng.choice((1, 1, 2, 3))))
    factor = rng.choice(FACTORS)
    renamed = tuple((extent, max(1, round(extent * factor))) for extent in chosen)
    return Change(renamed, rng.choice(BATCHES) if not renamed or rng.random() < 0.2 else 1)


def vary(module: Any, change: Change) -> Any | None:
    """The module with its shapes changed; None where no legal module, or too large a one, comes of it.

    Weights repeat the values of the original: what was positive, or in a certain range, stays so.
    """
    if len(module.functions) > 1:  # kernels of their own have their shapes inside
        return None
    try:
        main = _Writer(change).function(module["main"])
    except _ILLEGAL:
        return None
    return relax.transform.Normalize()(tvm.IRModule({relax.GlobalVar("main"): main}))


def skeleton(description: Mapping[str, Any]) -> str:
    """Digest of a description without its extents: a sub-graph and all its variants share it."""
    nodes = [
        (node["op"], _shapeless(node["attrs"]), [_without_extents(arg) for arg in node["args"]])
        for node in description["nodes"]
    ]
    ranks = [_rank(ty) for ty in description["inputs"]]
    text = json.dumps([ranks, nodes, description["outputs"]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def extents_of(description: Mapping[str, Any]) -> tuple[int, ...]:
    """All extents of inputs, weights and results, in an order that variants of one skeleton share."""
    found: list[int] = []
    for ty in description["inputs"]:
        _collect(ty, found)
    for node in description["nodes"]:
        for arg in node["args"]:
            if arg[0] == "const":
                _collect(arg[1], found)
        _collect(node["out"], found)
    return tuple(found)


def _extents(main: Any) -> list[int]:
    """The distinct extents that may be renamed, ascending."""
    found: set[int] = set()
    for parameter in main.params:
        found.update(static_shape(parameter.ty) or ())
    for block in main.body.blocks:
        for binding in block.bindings:
            value = binding.value
            for arg in value.args if isinstance(value, relax.Call) else ():
                if isinstance(arg, tvm.ir.GenericConst):
                    shape = static_shape(arg.ty) or ()
                    found.update(shape[:2] if _windowed(value) else shape)
    return sorted(extent for extent in found if extent >= _SMALLEST)


class _Writer:
    """Writes a function anew with other shapes. Raises one of `_ILLEGAL` where that gives no legal function."""

    def __init__(self, change: Change) -> None:
        self.renamed = dict(change.extents)
        self.batch = change.batch
        self.values: dict[Any, Any] = {}
        self.elements = 0
        self.builder = relax.BlockBuilder()

    def function(self, main: Any) -> Any:
        params = [relax.Var(p.name, self._input_type(p.ty)) for p in main.params]
        self.values.update(zip(main.params, params, strict=True))
        bindings = []
        for block in main.body.blocks:
            for binding in block.bindings:
                value = self.builder.normalize(self._value(binding.value))
                self._count(value.ty)
                var = type(binding.var)(binding.var.name, value.ty)
                bindings.append(relax.VarBinding(var, value))
                self.values[binding.var] = var
        result = self.builder.normalize(self._argument(main.body.body))
        body = relax.SeqExpr([relax.DataflowBlock(bindings)], result)
        return relax.Function(params, body, result.ty, is_pure=True).with_attr("global_symbol", "main")

    def _value(self, value: Any) -> Any:
        if isinstance(value, relax.Call):
            windowed = _windowed(value)
            args = [self._argument(arg, windowed) for arg in value.args]
            return relax.Call(value.op, args, self._attributes(value.attrs), value.ty_args)
        if isinstance(value, relax.TupleGetItem):
            return relax.TupleGetItem(self._argument(value.tuple_value), value.index)
        return self._argument(value)

    def _argument(self, arg: Any, windowed: bool = False) -> Any:
        if isinstance(arg, relax.Var):
            return self.values[arg]
        if isinstance(arg, relax.Tuple):
            return relax.Tuple([self._argument(field) for field in arg.fields])
        if isinstance(arg, relax.ShapeExpr):
            return relax.ShapeExpr(self._activation([int(extent) for extent in arg.values]))
        if isinstance(arg, tvm.ir.GenericConst):
            return self._constant(arg, windowed)
        return arg

    def _constant(self, constant: Any, windowed: bool) -> Any:
        old = static_shape(constant.ty) or ()
        kept = 2 if windowed else len(old)
        shape = (*(self.renamed.get(extent, extent) for extent in old[:kept]), *old[kept:])
        if shape == old:
            return constant
        array = constant.value.numpy()
        if not np.issubdtype(array.dtype, np.floating):
            raise ValueError("integers may be positions in something whose extent has changed")
        self._count(relax.TensorType(shape, constant.ty.dtype))
        return relax.const(np.resize(array, shape))

    def _input_type(self, ty: Any) -> Any:
        shape = static_shape(ty)
        if shape is None:
            raise ValueError("only tensors of static shape can be varied")
        changed = relax.TensorType(self._activation(shape), ty.dtype)
        self._count(changed)
        return changed

    def _activation(self, shape: Sequence[int]) -> list[int]:
        changed = [self.renamed.get(extent, extent) for extent in shape]
        if len(shape) > 1 and shape[0] == 1:
            changed[0] = self.batch
        return changed

    def _attributes(self, attrs: Any) -> Any:
        groups = getattr(attrs, "groups", 1)
        if groups == 1 or groups not in self.renamed:
            return attrs
        fields = {name: getattr(attrs, name) for name in attributes(attrs)}
        return type(attrs)(**{**fields, "groups": self.renamed[groups]})

    def _count(self, ty: Any) -> None:
        if isinstance(ty, relax.TupleType):
            for field in ty.fields:
                self._count(field)
            return
        shape = static_shape(ty)
        if shape is None or min(shape, default=1) < 1:
            raise ValueError(f"no tensor of static shape: {ty}")
        self.elements += int(np.prod(shape, dtype=np.int64))
        if self.elements > _MOST_ELEMENTS:
            raise ValueError("larger than what is worth measuring")


def _windowed(call: Any) -> bool:
    return isinstance(call.op, tvm.ir.Op) and str(call.op.name).startswith(_WINDOWED)


def _shapeless(attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: (value > 1 if name == "groups" else value) for name, value in attrs.items()}


def _without_extents(reference: Sequence[Any]) -> list[Any]:
    """A reference with ranks in place of shapes, and without the values of scalars."""
    if reference[0] == "const":
        return ["const", _rank(reference[1])]
    if reference[0] == "scalar":
        return ["scalar", reference[2]]
    if reference[0] == "tuple":
        return ["tuple", [_without_extents(field) for field in reference[1]]]
    if reference[0] == "value" and isinstance(reference[1], list):
        return ["value", len(reference[1])]
    return list(reference)


def _rank(ty: Sequence[Any]) -> list[Any]:
    """`[rank, dtype]` of a described tensor type; the list of its fields' for a tuple type."""
    if len(ty) == 2 and isinstance(ty[1], str):
        return [len(ty[0] or ()), ty[1]]
    return [_rank(field) for field in ty]


def _collect(ty: Sequence[Any], into: list[int]) -> None:
    if len(ty) == 2 and isinstance(ty[1], str):
        into.extend(extent for extent in ty[0] or () if isinstance(extent, int))
    else:
        for field in ty:
            _collect(field, into)
