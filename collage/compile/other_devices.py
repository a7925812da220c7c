"""Native kernels of devices other than the first one: each device's own lowering makes those of its partitions.

Such a kernel is scheduled and carries its target, so that the lowering of the first device leaves it as it is. `main`
calls it like any PrimFunc.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm
from tvm import relax

from collage.backends.lowering import Lowering
from collage.backends.tvm.partition import alone, is_primitive


def native_elsewhere(module: Any, owners: Mapping[str, str], home: str) -> dict[str, list[Any]]:
    """Device -> the symbols of native partitions that run there, `home` left out."""
    found: dict[str, list[Any]] = {}
    for symbol, function in module.functions_items():
        device = owners.get(symbol.name_hint, home)
        if device != home and is_primitive(function):
            found.setdefault(device, []).append(symbol)
    return found


def with_kernels_elsewhere(
    module: Any, owners: Mapping[str, str], home: str, lowering_of: Callable[[str], Lowering]
) -> Any:
    """The module with kernels in the place of native partitions that do not run at home.

    Parameters
    ----------
    module
        A partitioned module.
    owners
        Symbol of each partition -> its device.
    lowering_of
        Device -> its lowering.

    Raises
    ------
    CodegenError
        TVM cannot make one kernel of a partition, or cannot schedule it.
    """
    kernels: dict[str, tuple[Any, Any]] = {}
    for device, symbols in native_elsewhere(module, owners, home).items():
        lowering = lowering_of(device)
        made = lowering.scheduled(alone(module, symbols))
        for name in (symbol.name_hint for symbol in symbols):
            kernels[name] = made.get_global_var(name), made[name].with_attr("target", lowering.target)
    if not kernels:
        return module
    main = module["main"]
    bindings = []
    for binding in (b for block in main.body.blocks for b in block.bindings):
        value = binding.value
        if isinstance(value, relax.Call) and getattr(value.op, "name_hint", None) in kernels:
            symbol, _ = kernels[value.op.name_hint]
            types = list(binding.var.ty.fields) if isinstance(binding.var.ty, relax.TupleType) else binding.var.ty
            value = relax.op.call_tir(symbol, relax.Tuple(list(value.args)), types)
        bindings.append(relax.VarBinding(binding.var, value))
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], main.body.body)
    functions = dict(kernels.get(gv.name_hint, (gv, function)) for gv, function in module.functions_items())
    result = tvm.IRModule(functions, attrs=module.attrs)
    written = relax.Function(list(main.params), body, main.ret_ty, is_pure=True).with_attrs(main.attrs)
    result.update_func(module.get_global_var("main"), written)
    return result
