"""The engine of a second device for tests, "cpu:1": it refuses tensors that lie elsewhere."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from collage.errors import CompiledModelError

DEVICE = (1, 1)
FUNCTIONS: Mapping[str, Any] = {
    "nn.relu": lambda x: np.maximum(x, 0),
    "exp": np.exp,
    "add": np.add,
    "multiply": np.multiply,
    "negative": np.negative,
}


def create(blob: bytes, _options: Mapping[str, Any]) -> Any:
    """The engine: elementwise operators in NumPy, on tensors of the second device only."""
    count, steps, results = json.loads(blob)

    def run(*tensors: Any) -> None:
        places = {tuple(map(int, tensor.__dlpack_device__())) for tensor in tensors}
        if places != {DEVICE}:
            raise CompiledModelError(f"tensors lie on {sorted(places)}, the engine runs on {DEVICE}")
        values = [np.from_dlpack(tensor) for tensor in tensors[:count]]
        for name, arguments in steps:
            values.append(FUNCTIONS[name](*(values[i] for i in arguments)))
        for target, index in zip(tensors[count:], results, strict=True):
            value = np.ascontiguousarray(values[index])
            ctypes.memmove(target.data_ptr(), value.ctypes.data, value.nbytes)

    return run
