"""Binding dynamic dimensions: after this every input has a static shape, or an error names the dimension that lacks
one.

A dimension with a name (ONNX `dim_param`, a symbolic variable of Relax) that one input binds is bound in all
others. In ONNX files equal names need not mean equal extents: exporters write `?`, `-1` or `DynamicDimension` for all
that they do not know. There the shapes that are given win, and a note says so, as ONNX Runtime does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import tvm
from tvm import relax

from collage.errors import FrontendError, UnboundDimensionError

Shape = tuple[int, ...]


@dataclass(frozen=True)
class DeclaredInput:
    """An input as the model declares it: per dimension an extent, a name or None; `dimensions` None: unknown rank."""

    name: str
    dimensions: tuple[int | str | None, ...] | None


def bind_shapes(inputs: Sequence[DeclaredInput], shapes: Mapping[str, Shape], least: int = 1) -> dict[str, Shape]:
    """A static shape for each input, of extents that are not below `least`.

    Raises
    ------
    UnboundDimensionError
        A dynamic dimension is not bound.
    FrontendError
        `shapes` names no input, has another rank, contradicts a fixed dimension, or has an extent below `least`.
    """
    declared = {declaration.name: declaration for declaration in inputs}
    for name, shape in shapes.items():
        if name not in declared:
            known = ", ".join(f"'{known}'" for known in declared) or "none"
            raise FrontendError(
                f"a shape is given for '{name}', which is not an input of the model; its inputs: {known}"
            )
        if any(extent < least for extent in shape):
            raise FrontendError(f"the shape given for input '{name}' has an extent below {least}: {_text(shape)}")
        dimensions = declared[name].dimensions
        if dimensions is None:
            continue
        if len(dimensions) != len(shape):
            raise FrontendError(
                f"the shape given for input '{name}' has {len(shape)} dimensions, "
                f"the model declares {len(dimensions)}: {_text(shape)} against {_text(dimensions)}"
            )
        for position, (dimension, extent) in enumerate(zip(dimensions, shape, strict=True)):
            if isinstance(dimension, int) and dimension != extent:
                raise FrontendError(
                    f"the shape given for input '{name}' contradicts the model: "
                    f"dimension {position} is {dimension}, not {extent}"
                )
    extents = _extents(inputs, shapes)
    return {declaration.name: _bound(declaration, shapes, extents) for declaration in inputs}


def shape_notes(inputs: Sequence[DeclaredInput], shapes: Mapping[str, Shape]) -> tuple[str, ...]:
    """What the user should know of shapes: a name that gets several extents is no longer one dimension."""
    return tuple(
        f"the model calls dimensions of {' and '.join(map(repr, users))} '{symbol}', as if they were equal; "
        f"the shapes given win: {', '.join(map(str, extents))}"
        for symbol, extents in _extents(inputs, shapes).items()
        if len(extents) > 1
        for users in [[i.name for i in inputs if i.name in shapes and symbol in (i.dimensions or ())]]
    )


def _extents(inputs: Sequence[DeclaredInput], shapes: Mapping[str, Shape]) -> dict[str, list[int]]:
    """Name of a dimension -> the extents that the shapes give it, each once; several where it means nothing."""
    extents: dict[str, list[int]] = {}
    for declaration in inputs:
        for dimension, extent in zip(declaration.dimensions or (), shapes.get(declaration.name, ()), strict=False):
            if isinstance(dimension, str) and extent not in extents.setdefault(dimension, []):
                extents[dimension].append(extent)
    return extents


def _bound(declaration: DeclaredInput, shapes: Mapping[str, Shape], extents: Mapping[str, Sequence[int]]) -> Shape:
    name, dimensions = declaration.name, declaration.dimensions
    if name in shapes:
        return shapes[name]
    if dimensions is None:
        raise UnboundDimensionError(
            f"input '{name}' has an unknown number of dimensions; give its shape: "
            f'--shape {name}=... or shapes={{"{name}": (...)}}'
        )
    result: list[int] = []
    for position, dimension in enumerate(dimensions):
        known = extents.get(dimension, ()) if isinstance(dimension, str) else [dimension]
        extent = known[0] if len(known) == 1 else None
        if extent is None:
            label = f"{position} ('{dimension}')" if dimension else f"{position}"
            entries = [str(entry) if isinstance(entry, int) else "N" for entry in dimensions]
            literal = f"({', '.join(entries)}{',' if len(entries) == 1 else ''})"
            raise UnboundDimensionError(
                f"dimension {label} of input '{name}' is dynamic; bind it with a number in place of N: "
                f'--shape {name}={",".join(entries)} or shapes={{"{name}": {literal}}}'
            )
        result.append(extent)
    return tuple(result)


def with_batch(inputs: Sequence[DeclaredInput], batch: int, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """A static shape for each input, in which every dynamic first dimension is `batch`.

    A name that a dynamic first dimension has is the batch's elsewhere, too, as in the state of a recurrent layer; a
    name that one input has twice means nothing.

    Raises
    ------
    UnboundDimensionError, FrontendError
        As `bind_shapes`; also when no input has a dynamic first dimension.
    """
    first = [i.dimensions[0] for i in inputs if i.dimensions and not isinstance(i.dimensions[0], int)]
    if not first:
        raise _one_batch()
    names = {n for n in first if n is not None and all((i.dimensions or ()).count(n) <= 1 for i in inputs)}
    places = {
        i.name: [k for k, d in enumerate(i.dimensions or ()) if d in names or (k == 0 and not isinstance(d, int))]
        for i in inputs
    }

    def batched(name: str, extents: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(batch if k in places.get(name, ()) else extent for k, extent in enumerate(extents))

    declared = [i if i.dimensions is None else DeclaredInput(i.name, batched(i.name, i.dimensions)) for i in inputs]
    return bind_shapes(declared, {name: batched(name, shape) for name, shape in shapes.items()})


def _one_batch() -> FrontendError:
    return FrontendError("no input has a dynamic first dimension, so that the model has one batch only")


def declared_onnx_inputs(graph: onnx.GraphProto) -> list[DeclaredInput]:
    """The true inputs of an ONNX graph: old IR versions list the initializers among them."""
    constants = {tensor.name for tensor in graph.initializer} | {
        tensor.values.name for tensor in graph.sparse_initializer
    }
    result = []
    for value in graph.input:
        if value.name in constants:
            continue
        if not value.type.HasField("tensor_type"):
            raise FrontendError(f"input '{value.name}' is not a tensor but a {value.type.WhichOneof('value')}")
        tensor = value.type.tensor_type
        dimensions = tuple(_onnx_dimension(d) for d in tensor.shape.dim) if tensor.HasField("shape") else None
        result.append(DeclaredInput(value.name, dimensions))
    return result


def _onnx_dimension(dimension: onnx.TensorShapeProto.Dimension) -> int | str | None:
    if dimension.HasField("dim_value") and dimension.dim_value > 0:  # exporters write 0 or -1 for "dynamic"
        return int(dimension.dim_value)
    return str(dimension.dim_param) or None


def bind_relax_shapes(mod: tvm.IRModule, shapes: Mapping[str, Shape]) -> tvm.IRModule:
    """Bind the symbolic dimensions of a Relax module's inputs.

    Raises
    ------
    UnboundDimensionError, FrontendError
        As `bind_shapes`; also when there is no `main` or an input is no tensor.
    """
    variables: dict[tvm.tirx.Var, int] = {}
    for parameter, extents in _relax_inputs(mod):
        for extent, given in zip(extents or (), shapes.get(parameter, ()), strict=False):
            if isinstance(extent, tvm.tirx.Var):
                variables.setdefault(extent, given)
    if variables:
        mod = relax.transform.BindSymbolicVars(variables, "main")(mod)
    declared = [
        DeclaredInput(name, None if extents is None else tuple(_relax_dimension(extent) for extent in extents))
        for name, extents in _relax_inputs(mod)
    ]
    bind_shapes(declared, shapes)
    for declaration in declared:
        if declaration.dimensions is None:
            raise FrontendError(f"input '{declaration.name}' has no shape in its type; annotate it in the Relax module")
    return mod


def bind_relax_batch(mod: tvm.IRModule, batch: int, shapes: Mapping[str, Shape]) -> tvm.IRModule:
    """Bind the symbols that are an input's first dimension to `batch`, and the others by shapes; raises as
    `with_batch` does.
    """
    inputs = _relax_inputs(mod)
    firsts = (extents[0] for _, extents in inputs if extents)
    variables = {extent: batch for extent in firsts if isinstance(extent, tvm.tirx.Var)}
    if not variables:
        raise _one_batch()
    given = {
        name: tuple(variables.get(extent, wanted) for extent, wanted in zip(extents, shapes[name], strict=False))
        for name, extents in inputs
        if extents is not None and name in shapes and len(shapes[name]) == len(extents)
    }
    return bind_relax_shapes(relax.transform.BindSymbolicVars(variables, "main")(mod), {**shapes, **given})


def _relax_inputs(mod: tvm.IRModule) -> list[tuple[str, list[Any] | None]]:
    """Name and extents of each input; None for a tensor type without a shape."""
    if "main" not in [variable.name_hint for variable in mod.get_global_vars()] or not isinstance(
        mod["main"], relax.Function
    ):
        raise FrontendError("the module has no Relax function 'main'")
    result: list[tuple[str, list[Any] | None]] = []
    for parameter in mod["main"].params:
        if not isinstance(parameter.ty, relax.TensorType):
            raise FrontendError(f"input '{parameter.name}' is not a tensor but a {parameter.ty}")
        shape = parameter.ty.shape
        result.append((parameter.name, list(shape.values) if isinstance(shape, relax.ShapeExpr) else None))
    return result


def _relax_dimension(extent: Any) -> int | str:
    return int(extent) if isinstance(extent, tvm.tirx.IntImm) else str(extent)


def _text(dimensions: Sequence[int | str | None]) -> str:
    return "(" + ", ".join("?" if dimension is None else str(dimension) for dimension in dimensions) + ")"
