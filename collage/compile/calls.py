"""Calls of functions outside of the module: TVM allocates the results, where it knows their shapes.

A result whose shape depends on data is allocated by the engine: its function then takes the inputs alone and returns
the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

from collage.frontend.values import static_shape


def external_call(symbol: str, arguments: Sequence[Any], result: Any) -> Any:
    """The call of a packed function that gives a value of type `result`."""
    fields = list(result.fields) if isinstance(result, relax.TupleType) else [result]
    if all(static_shape(field) is not None for field in fields):
        out = fields if isinstance(result, relax.TupleType) else result
        return relax.op.call_dps_packed(symbol, relax.Tuple(list(arguments)), out_ty=out)
    return relax.op.call_pure_packed(symbol, *arguments, ty_args=[result])


def with_open_results(module: tvm.IRModule) -> tvm.IRModule:
    """The module with calls that return what TVM cannot allocate, in `main`."""
    main = module["main"]
    blocks, changed = [], False
    for block in main.body.blocks:
        bindings = []
        for binding in block.bindings:
            value = binding.value
            if _is_dps(value):
                value = external_call(str(value.args[0].global_symbol), list(value.args[1].fields), binding.var.ty)
                changed |= not _is_dps(value)
            bindings.append(relax.VarBinding(binding.var, value))
        blocks.append(relax.DataflowBlock(bindings))
    if not changed:
        return module
    body = relax.SeqExpr(blocks, main.body.body)
    result = tvm.IRModule(dict(module.functions.items()), attrs=module.attrs)
    result[module.get_global_var("main")] = relax.Function(
        list(main.params), body, main.ret_ty, is_pure=True
    ).with_attrs(main.attrs)
    return result


def _is_dps(value: Any) -> bool:
    named = isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op)
    return named and value.op.name == "relax.call_dps_packed" and isinstance(value.args[0], relax.ExternFunc)
