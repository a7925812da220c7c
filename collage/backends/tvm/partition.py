"""One kernel per native partition, whatever the target: a partition *is* what is fused (invariant 1: the kernels of a
partition alone are the kernels that it has in the whole).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relax

from collage.errors import CodegenError, last_line


def fuse_partitions(mod: Any, target: tvm.target.Target, fuse: Callable[[Any], Any]) -> Any:
    """The module with every `Primitive` Relax function replaced by one unscheduled PrimFunc.

    Parameters
    ----------
    fuse
        Legalises the operators of a module, and fuses each `Primitive` function.

    Raises
    ------
    CodegenError
        TVM cannot fuse a partition into one kernel; the message names its operators.
    """
    primitive = [gv for gv, func in mod.functions_items() if is_primitive(func)]
    with target:
        try:
            result = fuse(mod)
        except Exception as error:  # TVM raises what it likes; find the partition and say which one it is
            for gv in primitive:
                try:
                    fuse(alone(mod, [gv]))
                except Exception as cause:
                    operators = ", ".join(operator_names(mod[gv]))
                    raise CodegenError(f"TVM cannot make one kernel of {operators}: {last_line(cause)}") from cause
            raise CodegenError(f"TVM cannot lower the module: {last_line(error)}") from error
    for gv in primitive:
        if not isinstance(result[gv.name_hint], tvm.tirx.PrimFunc):
            operators = ", ".join(operator_names(mod[gv]))
            raise CodegenError(f"TVM cannot make one kernel of {operators}: no loops were made of it")
    return result


def is_scheduled(func: tvm.tirx.PrimFunc) -> bool:
    """Whether a kernel is to stay as it is."""
    return bool(func.attrs) and bool(func.attrs.get("tirx.is_scheduled", False))


def operator_names(function: Any) -> list[str]:
    """The operators that a Relax function calls, in order."""
    names: list[str] = []
    for block in function.body.blocks:
        for binding in block.bindings:
            op = getattr(binding.value, "op", None)
            if isinstance(op, tvm.ir.Op):
                names.append(op.name.removeprefix("relax."))
    return names


def is_primitive(func: Any) -> bool:
    """Whether a function of a module is a native partition that is no kernel yet."""
    return isinstance(func, relax.Function) and bool(func.attrs) and func.attrs.get("Primitive", 0) == 1


def alone(mod: Any, symbols: Sequence[tvm.ir.GlobalVar]) -> Any:
    """Some functions, called by a `main` of their own, with the PrimFuncs that they may call."""
    functions = {gv: func for gv, func in mod.functions_items() if isinstance(func, tvm.tirx.PrimFunc)}
    builder = relax.BlockBuilder(tvm.IRModule({**functions, **{symbol: mod[symbol] for symbol in symbols}}))
    params = {symbol: [relax.Var(param.name, param.ty) for param in mod[symbol].params] for symbol in symbols}
    with builder.function("main", [param for own in params.values() for param in own]):
        with builder.dataflow():
            results = [builder.emit_output(relax.Call(symbol, params[symbol])) for symbol in symbols]
        builder.emit_func_output(results[0] if len(results) == 1 else relax.Tuple(results))
    return builder.get()
