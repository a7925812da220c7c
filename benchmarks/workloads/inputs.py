"""Random inputs for a workload: legal ones, found by what the graph does with each input."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto

#: Element types of floating-point inputs, for NumPy.
_FLOATS = MappingProxyType(
    {TensorProto.FLOAT: np.float32, TensorProto.FLOAT16: np.float16, TensorProto.BFLOAT16: ml_dtypes.bfloat16}
)


def random_inputs(model: ModelProto, seed: int = 0) -> dict[str, NDArray[Any]]:
    """One array for each graph input of static shape, by name, in the graph's order.

    Floating-point inputs are standard normal. An int64 input that indexes a table (Gather of an initializer) is uniform
    over the table's rows; any other int64 input is taken for an attention mask: ones, then up to a quarter of padding
    zeros in each row.

    Raises
    ------
    ValueError
        An input has a dynamic dimension or another element type.
    """
    rng = np.random.default_rng(seed)
    weights = {tensor.name for tensor in model.graph.initializer}
    rows = table_rows(model)
    arrays: dict[str, NDArray[Any]] = {}
    for value in model.graph.input:
        if value.name in weights:
            continue
        tensor = value.type.tensor_type
        if any(not dim.HasField("dim_value") for dim in tensor.shape.dim):
            raise ValueError(f"input {value.name} has a dynamic dimension; bind it first")
        shape = tuple(dim.dim_value for dim in tensor.shape.dim)
        if tensor.elem_type in _FLOATS:
            arrays[value.name] = rng.standard_normal(shape, dtype=np.float32).astype(_FLOATS[tensor.elem_type])
        elif tensor.elem_type != TensorProto.INT64:
            kind = TensorProto.DataType.Name(tensor.elem_type)
            raise ValueError(f"input {value.name} is {kind}, not float32, float16, bfloat16 or int64")
        elif value.name in rows:
            arrays[value.name] = rng.integers(0, rows[value.name], shape)
        else:
            arrays[value.name] = _padding_mask(shape, rng)
    return arrays


def table_rows(model: ModelProto) -> dict[str, int]:
    """How many rows the smallest table has that is indexed by a value, for each such value."""
    tables = {tensor.name: tensor.dims[0] for tensor in model.graph.initializer if tensor.dims}
    rows: dict[str, int] = {}
    for node in model.graph.node:
        if node.op_type == "Gather" and node.input[0] in tables:
            indices = node.input[1]
            rows[indices] = min(tables[node.input[0]], rows.get(indices, tables[node.input[0]]))
    return rows


def _padding_mask(shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.int64]:
    """Ones with a run of zeros at the end of each row, at least one where the row is long enough."""
    length = shape[-1]
    kept = length - rng.integers(1, max(2, length // 4 + 1), shape[:-1])
    return (np.arange(length) < np.maximum(kept, 1)[..., None]).astype(np.int64)
