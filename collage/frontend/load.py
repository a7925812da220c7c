"""`load`: whatever describes a network -> canonical Relax."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import tvm

from collage.annotations.places import places_of
from collage.errors import FrontendError
from collage.frontend.functions import function_notes
from collage.frontend.onnx.file import OnnxSource, read_onnx
from collage.frontend.onnx.importer import import_onnx
from collage.frontend.passes.canonical import canonicalise
from collage.frontend.passes.device import for_device
from collage.frontend.places import realised, taken_off
from collage.frontend.shapes import (
    Shape,
    bind_relax_batch,
    bind_relax_shapes,
    bind_shapes,
    declared_onnx_inputs,
    shape_notes,
    with_batch,
)
from collage.frontend.source import NOTES, SOURCE, notes_of
from collage.frontend.torch_program import import_torch, is_exported_program
from collage.frontend.values import dependent_notes, input_specs


def load(
    model: str | os.PathLike[str] | onnx.ModelProto | tvm.IRModule | Any,
    shapes: Mapping[str, Sequence[int]] | None = None,
    device: str = "cpu",
) -> tvm.IRModule:
    """Read a network and bring it into canonical form (see the package's docstring). The argument is not changed.

    Parameters
    ----------
    model
        Path of an ONNX file, an `onnx.ModelProto`, a `torch.export.ExportedProgram`, or a Relax module with `main`.
    shapes
        Extents per input name; binds dynamic dimensions, e.g. `{"input": (1, 3, 224, 224)}`. Where an ONNX file calls
        several dimensions alike and they get different extents, these win, with a warning.
    device
        What it is to run on. On "cuda" half-precision convolutions have their channels last, and products of one tensor
        that become heads are one product.

    Raises
    ------
    UnboundDimensionError
        An input has a dynamic dimension that `shapes` does not bind.
    UnsupportedOperatorError
        Operators that cannot be imported; all are listed, with their nodes.
    FrontendError
        The model is missing, corrupt or inconsistent; `shapes` contradicts it; a shape depends on data; a value would
        have to be on two devices.
    """
    if isinstance(model, tvm.IRModule) and places_of(model):
        return model  # places go by the bindings of the canonical module
    wanted = _wanted(shapes)
    source = _onnx_source(model)
    imported = realised(bind_relax_shapes(_relax(model), wanted)) if source is None else import_onnx(source, wanted)
    module = taken_off(for_device(canonicalise(imported), device))
    notes = (*notes_of(model), *function_notes(model)) if isinstance(model, tvm.IRModule) else ()
    if source is not None:
        notes = shape_notes(declared_onnx_inputs(source.model.graph), wanted)
        for note in notes:
            warnings.warn(note, stacklevel=2)
    notes = (*notes, *(note for note in dependent_notes(module) if note not in notes))
    if notes:
        module = module.with_attr(NOTES, list(notes))
    if isinstance(model, (str, os.PathLike)):
        return module.with_attr(SOURCE, str(Path(model).resolve()))
    return module


def input_shapes(model: Any, shapes: Mapping[str, Sequence[int]] | None = None) -> dict[str, Shape]:
    """The shapes that all inputs have when `load` is given these; the network itself is not imported.

    Raises
    ------
    UnboundDimensionError, FrontendError
        As of `load`.
    """
    source = _onnx_source(model)
    if source is not None:
        return bind_shapes(declared_onnx_inputs(source.model.graph), _wanted(shapes))
    return _shapes_of(bind_relax_shapes(_relax(model), _wanted(shapes)))


def batch_shapes(
    model: Any, batches: Sequence[int], shapes: Mapping[str, Sequence[int]] | None = None
) -> list[dict[str, Shape]]:
    """For each batch the shapes of all inputs, in which every dynamic first dimension is the batch.

    Parameters
    ----------
    model
        What `load` takes.
    batches
        Numbers of samples.
    shapes
        For the other dynamic dimensions; the first extent of a shape that is given here is not used where it is
        dynamic.

    Raises
    ------
    UnboundDimensionError, FrontendError
        As of `load`; also when no input has a dynamic first dimension.
    """
    source, wanted = _onnx_source(model), _wanted(shapes)
    if source is not None:
        declared = declared_onnx_inputs(source.model.graph)
        return [with_batch(declared, batch, wanted) for batch in batches]
    module = _relax(model)
    return [_shapes_of(bind_relax_batch(module, batch, wanted)) for batch in batches]


def _shapes_of(module: tvm.IRModule) -> dict[str, Shape]:
    return {spec.name: spec.shape for spec in input_specs(module)}


def _wanted(shapes: Mapping[str, Sequence[int]] | None) -> dict[str, Shape]:
    return {name: tuple(int(extent) for extent in shape) for name, shape in (shapes or {}).items()}


def _onnx_source(model: Any) -> OnnxSource | None:
    if isinstance(model, (str, os.PathLike)):
        return read_onnx(Path(model))
    return OnnxSource(model, Path("."), "the ONNX model") if isinstance(model, onnx.ModelProto) else None


def _relax(model: Any) -> tvm.IRModule:
    if isinstance(model, tvm.IRModule):
        return model
    if is_exported_program(model):
        return import_torch(model)
    raise FrontendError(
        f"cannot load a network from a {type(model).__module__}.{type(model).__qualname__}; "
        "expected the path of an ONNX file, an onnx.ModelProto, a torch.export.ExportedProgram or a Relax IRModule"
    )
