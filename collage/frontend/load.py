"""`load`: whatever describes a network -> canonical Relax."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import tvm

from collage.errors import FrontendError
from collage.frontend.onnx.file import OnnxSource, read_onnx
from collage.frontend.onnx.importer import import_onnx
from collage.frontend.passes.canonical import canonicalise
from collage.frontend.passes.layout import for_device
from collage.frontend.shapes import Shape, bind_relax_shapes, declared_onnx_inputs, shape_notes
from collage.frontend.source import NOTES, SOURCE, notes_of
from collage.frontend.torch_program import import_torch, is_exported_program


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
        What it is to run on; half-precision convolutions have their channels last on "cuda".

    Raises
    ------
    UnboundDimensionError
        An input has a dynamic dimension that `shapes` does not bind.
    UnsupportedOperatorError
        Operators that cannot be imported; all are listed, with their nodes.
    FrontendError
        The model is missing, corrupt or inconsistent; `shapes` contradicts it; a shape depends on data.
    """
    wanted = {name: tuple(int(extent) for extent in shape) for name, shape in (shapes or {}).items()}
    source = _onnx_source(model)
    imported = _imported(model, wanted) if source is None else import_onnx(source, wanted)
    module = for_device(canonicalise(imported), device)
    notes = notes_of(model) if isinstance(model, tvm.IRModule) else ()
    if source is not None:
        notes = shape_notes(declared_onnx_inputs(source.model.graph), wanted)
        for note in notes:
            warnings.warn(note, stacklevel=2)
    if notes:
        module = module.with_attr(NOTES, list(notes))
    if isinstance(model, (str, os.PathLike)):
        return module.with_attr(SOURCE, str(Path(model).resolve()))
    return module


def _onnx_source(model: Any) -> OnnxSource | None:
    if isinstance(model, (str, os.PathLike)):
        return read_onnx(Path(model))
    return OnnxSource(model, Path("."), "the ONNX model") if isinstance(model, onnx.ModelProto) else None


def _imported(model: Any, wanted: Mapping[str, Shape]) -> tvm.IRModule:
    if isinstance(model, tvm.IRModule):
        return bind_relax_shapes(model, wanted)
    if is_exported_program(model):
        return bind_relax_shapes(import_torch(model), wanted)
    raise FrontendError(
        f"cannot load a network from a {type(model).__module__}.{type(model).__qualname__}; "
        "expected the path of an ONNX file, an onnx.ModelProto, a torch.export.ExportedProgram or a Relax IRModule"
    )
