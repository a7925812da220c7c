"""Reading ONNX files and the tensors in them: every way in which that fails is one clear line.

Weights stay where they are (in the protobuf message, or in external files) until the importer asks for one, so that
a large model is held at most twice: once as read and once as constants.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data

from collage.errors import FrontendError, UnsupportedOperatorError

_SIGNED = ("float16", "float32", "float64", "int8", "int16", "int32", "int64")
#: The types of NumPy that tensors may have.
DTYPES = frozenset((*_SIGNED, "uint8", "uint16", "uint32", "uint64", "bool"))


@dataclass(frozen=True)
class OnnxSource:
    """An ONNX model, the folder that its external data is relative to, and what to call it in messages."""

    model: onnx.ModelProto
    folder: Path
    label: str


def read_onnx(path: Path) -> OnnxSource:
    """Parse an ONNX file; external data is left on disk.

    Raises
    ------
    FrontendError
        The file is missing, unreadable, empty, a folder, or no ONNX model.
    """
    if path.is_dir():
        raise FrontendError(f"{path} is a directory, not an ONNX file")
    try:
        if path.stat().st_size == 0:
            raise FrontendError(f"{path} is empty")
        model = onnx.load(path, load_external_data=False)
    except FileNotFoundError:
        raise FrontendError(f"{path}: no such file") from None
    except OSError as error:
        raise FrontendError(f"{path} cannot be read: {error.strerror or error}") from error
    except (DecodeError, ValueError, TypeError) as error:
        raise FrontendError(f"{path} is not an ONNX file, or is truncated: {_first_line(error)}") from error
    source = OnnxSource(model, path.parent, str(path))
    check_model(source)
    return source


def check_model(source: OnnxSource) -> None:
    """Refuse what is no ONNX model at all: random bytes often parse as a message with nothing in it."""
    model = source.model
    if not model.ir_version or not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise FrontendError(f"{source.label} is not an ONNX file: it holds no graph")
    if model.ir_version < 3:
        raise FrontendError(f"{source.label} has ONNX IR version {model.ir_version}; the oldest that can be read is 3")
    if not model.graph.output:
        raise FrontendError(f"{source.label} has no outputs")


def read_tensor(tensor: onnx.TensorProto, folder: Path) -> np.ndarray:
    """The value of a tensor, read from `folder` when it is stored outside the model.

    Raises
    ------
    FrontendError
        The data is missing, too short, or of a type that has no array.
    """
    try:
        if uses_external_data(tensor):
            detached = onnx.TensorProto()  # the caller's model must not grow
            detached.CopyFrom(tensor)
            load_external_data_for_tensor(detached, str(folder))
            tensor = detached
        array = onnx.numpy_helper.to_array(tensor)
    except OSError as error:
        raise FrontendError(f"external data of tensor '{tensor.name}' cannot be read: {_first_line(error)}") from error
    except onnx.checker.ValidationError as error:
        raise FrontendError(f"external data of tensor '{tensor.name}' is missing: {_first_line(error)}") from error
    except (ValueError, TypeError, NotImplementedError) as error:
        raise FrontendError(f"tensor '{tensor.name}' cannot be read: {_first_line(error)}") from error
    if array.dtype == object:
        raise FrontendError(f"tensor '{tensor.name}' holds strings, which cannot be compiled")
    return np.asarray(array)


def check_dtype(dtype: str, subject: str) -> None:
    """Refuse types that TVM and ONNX understand differently: floats of eight bits and less, whose conversions round
    otherwise, and integers of four bits and less, which TVM packs.

    Raises
    ------
    UnsupportedOperatorError
        The dtype is neither NumPy's nor bfloat16.
    """
    if dtype not in DTYPES and dtype != "bfloat16":
        raise UnsupportedOperatorError(f"{subject} has dtype {dtype}: not supported")


def describe_node(node: onnx.NodeProto) -> str:
    """How messages call a node: operator, then its name, or its first output when it has none."""
    operator = f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
    if node.name:
        return f"{operator} (node '{node.name}')"
    return f"{operator} (the node that gives '{next(iter(node.output), '')}')"


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
