"""What a loaded module says of where it is from: its ONNX file, which rivals of Collage's plans run by themselves, and
notes to the user.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import onnx
import tvm
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

from collage.frontend.shapes import declared_onnx_inputs

#: Attribute of a loaded module: the path of its ONNX file.
SOURCE = "collage_source"
#: Attribute of a loaded module: what the user should know of how it was loaded.
NOTES = "collage_notes"
#: Protocol buffers hold no more; larger models have their weights in files of their own.
_LARGEST = (1 << 31) - 1


def onnx_file(model: Any, folder: Path) -> Path | None:
    """Path of the ONNX file that `collage.load` took a network from; None where it was none, or is gone.

    Parameters
    ----------
    model
        What `collage.load` takes, or what it gave.
    folder
        Where an `onnx.ModelProto` is written to.
    """
    if isinstance(model, (str, os.PathLike)):
        return Path(model)
    if isinstance(model, onnx.ModelProto):
        if model.ByteSize() > _LARGEST:
            return None
        path = folder / "model.onnx"
        path.write_bytes(model.SerializeToString())
        return path
    if isinstance(model, tvm.IRModule) and model.attrs and SOURCE in model.attrs:
        path = Path(str(model.attrs[SOURCE]))
        return path if path.is_file() else None
    return None


def notes_of(module: tvm.IRModule) -> tuple[str, ...]:
    """What the user should know of how a module was loaded."""
    return tuple(map(str, module.attrs[NOTES])) if module.attrs and NOTES in module.attrs else ()


def dynamic_onnx(model: Any) -> tuple[bytes, list[tuple[str, str, list[int | None] | None]]] | None:
    """The ONNX model that `collage.load` took a network from, whole, and its inputs: name, dtype, and extents, None
    where they are dynamic.

    None where the network is of no ONNX file, has no dynamic input, or is too large for one message.
    """
    with tempfile.TemporaryDirectory(prefix="collage-") as folder:
        path = onnx_file(model, Path(folder))
        proto = None if path is None else onnx.load(path)
    if proto is None:
        return None
    inputs: list[tuple[str, str, list[int | None] | None]] = []
    types = {value.name: value.type.tensor_type.elem_type for value in proto.graph.input}
    for declared in declared_onnx_inputs(proto.graph):
        dimensions = declared.dimensions
        extents = None if dimensions is None else [d if isinstance(d, int) else None for d in dimensions]
        inputs.append((declared.name, str(onnx.helper.tensor_dtype_to_np_dtype(types[declared.name])), extents))
    if not any(extents is None or None in extents for _, _, extents in inputs):
        return None
    try:
        content: bytes = proto.SerializeToString()
    except (EncodeError, ValueError):  # with its weights, which may be in other files, it is too large for one message
        return None
    return (content, inputs) if len(content) <= _LARGEST else None
