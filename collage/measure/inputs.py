"""Legal random inputs: integers that index something stay within bounds, and are not all zero; a number that the
network asks for is given.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

#: Operators that pass index values on without changing them.
_INDEX_PRESERVING = frozenset(
    f"relax.{name}"
    for name in [
        "reshape",
        "expand_dims",
        "squeeze",
        "permute_dims",
        "broadcast_to",
        "flatten",
        "concat",
        "split",
        "strided_slice",
        "astype",
        "tile",
        "repeat",
        "where",
        "flip",
        "take",
    ]
)
#: Indexing operators: position of the indices among the arguments, and of the data that they index.
_INDEXING = {
    "relax.take": (1, 0),
    "relax.gather_elements": (1, 0),
    "relax.gather_nd": (1, 0),
    "relax.one_hot": (0, None),
}


def random_inputs(module: Any, seed: int = 0, function: str = "main") -> list[np.ndarray]:
    """One array per parameter: standard normal floats, integers below what they index; bytes of all values, and other
    integers below 2, when they index nothing. A single integer that is compared with a constant is that constant: of
    a sampling rate that chooses a branch, for example, the values that mean nothing choose one that does not fit.

    Parameters
    ----------
    module
        Canonical Relax module with static shapes.
    """
    func = module[function]
    bounds, asked = _facts(func)
    rng = np.random.default_rng(seed)
    arrays = []
    for param in func.params:
        shape = tuple(int(d) for d in param.ty.shape.values)
        dtype = str(param.ty.dtype)
        if dtype == "bool":
            arrays.append(rng.random(shape) < 0.5)
        elif param in asked and np.prod(shape) == 1:
            arrays.append(np.full(shape, asked[param], dtype))
        elif dtype in ("int8", "uint8") and param not in bounds:
            arrays.append(
                rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, size=shape, dtype=dtype, endpoint=True)
            )
        elif dtype.startswith(("int", "uint")):
            arrays.append(rng.integers(0, max(1, bounds.get(param, 2)), size=shape).astype(dtype))
        else:
            arrays.append(rng.standard_normal(shape, dtype=np.float32).astype(dtype))
    return [np.asarray(a) for a in arrays]


def _facts(func: Any) -> tuple[dict[Any, int], dict[Any, int]]:
    """Parameter -> exclusive upper bound of the values that it may hold, for parameters whose values are used as
    indices; and parameter -> the first number, beyond 0 and 1, that it is compared with.
    """
    origins: dict[Any, set[Any]] = {param: {param} for param in func.params}
    bounds: dict[Any, int] = {}
    asked: dict[Any, int] = {}
    for block in func.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op):
                _restrict(value, origins, bounds)
                _ask(value, origins, asked)
                flows = value.op.name in _INDEX_PRESERVING
            else:
                flows = True
            sources: set[Any] = set()
            if flows:
                for var in relax.analysis.free_vars(value):
                    sources |= origins.get(var, set())
            origins[binding.var] = sources
    return bounds, asked


def _restrict(call: Any, origins: dict[Any, set[Any]], bounds: dict[Any, int]) -> None:
    if call.op.name not in _INDEXING:
        return
    where, data = _INDEXING[call.op.name]
    if data is None:
        limit = int(call.attrs.depth)
    else:
        shape = [int(d) for d in call.args[data].ty.shape.values]
        axis = getattr(call.attrs, "axis", None)
        limit = min(shape) if axis is None and call.op.name == "relax.gather_nd" else shape[int(axis or 0)]
    for var in relax.analysis.free_vars(call.args[where]):
        for param in origins.get(var, ()):
            bounds[param] = min(limit, bounds.get(param, limit))


def _ask(call: Any, origins: dict[Any, set[Any]], asked: dict[Any, int]) -> None:
    if call.op.name not in ("relax.equal", "relax.not_equal"):
        return
    for var, other in (call.args, reversed(call.args)):
        if isinstance(var, relax.Var) and isinstance(other, tvm.ir.GenericConst) and "int" in str(other.ty.dtype):
            numbers = other.value.numpy().ravel()
            for param in origins.get(var, ()):
                if len(numbers) == 1 and numbers[0] not in (0, 1):
                    asked.setdefault(param, int(numbers[0]))
