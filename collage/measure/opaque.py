"""Reference values of opaque nodes, from ONNX Runtime without any optimisation."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from onnx import FunctionProto

from collage.annotations.opaque import CALLEE, decoded, model_of, operator_of
from collage.errors import CollageError, last_line

#: Tensors up to so many bytes are constants of the model that runs: some operators want theirs to be.
_SMALL = 1 << 16


def register() -> None:
    """Let TVM run opaque nodes in this process."""
    tvm_ffi.register_global_func(CALLEE, _call, override=True)


def run_opaque(text: str, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The results of an opaque node.

    Parameters
    ----------
    text
        The function, as its call carries it.
    arrays
        One per formal input.

    Raises
    ------
    CollageError
        ONNX Runtime is not installed, or does not run it on these values.
    """
    function = decoded(text)
    try:
        import onnxruntime
    except ImportError as error:
        raise CollageError(
            f"reference values of {operator_of(function)} need onnxruntime, which is not installed"
        ) from error
    small = {i: array for i, array in enumerate(arrays) if array.nbytes <= _SMALL}
    try:
        return _run(onnxruntime, function, arrays, small)
    except Exception as error:  # the bindings raise a dozen unrelated types, all direct children of Exception
        with contextlib.suppress(Exception):  # of constants it refuses what it takes at run time: limits of shape [1]
            return _run(onnxruntime, function, arrays, {})
        raise CollageError(f"ONNX Runtime does not run {operator_of(function)}: {last_line(error)}") from error


def _run(
    onnxruntime: Any, function: FunctionProto, arrays: list[np.ndarray], known: Mapping[int, np.ndarray]
) -> list[np.ndarray]:
    """The results with some operands as constants."""
    model = model_of(function, [(array.shape, str(array.dtype)) for array in arrays], known)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    feeds = {name: array for i, (name, array) in enumerate(zip(function.input, arrays, strict=True)) if i not in known}
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(result, order="C") for result in session.run(None, feeds)]


def _call(text: Any, *tensors: Any) -> Any:
    results = run_opaque(str(text), [tensor.numpy() for tensor in tensors])
    given = [tvm.runtime.tensor(result) for result in results]
    return given[0] if len(given) == 1 else given
