"""The functions of a module: a network is one of them, `main` unless another is asked for (RFC 0062: "The remaining
phases execute on each global function separately").
"""

from __future__ import annotations

import tvm
from tvm import relax

from collage.errors import FrontendError


def entry_points(module: tvm.IRModule) -> tuple[str, ...]:
    """The names of a module's public Relax functions, `main` first: private ones are inlined where they are called."""
    names = [
        gv.name_hint
        for gv, function in module.functions_items()
        if isinstance(function, relax.Function) and function.attrs and "global_symbol" in function.attrs
    ]
    return tuple(sorted(names, key=lambda name: (name != "main", name)))


def entry_module(module: tvm.IRModule, name: str) -> tvm.IRModule:
    """The module whose `main` is one of its public Relax functions; the other public ones are left out.

    Raises
    ------
    FrontendError
        There is no such function.
    """
    names = entry_points(module)
    if name not in names:
        raise FrontendError(f"the module has no public Relax function {name!r}; it has: {', '.join(names) or 'none'}")
    kept = {gv: function for gv, function in module.functions_items() if gv.name_hint not in names}
    kept[relax.GlobalVar("main")] = module[name].with_attr("global_symbol", "main")
    return relax.transform.Normalize()(tvm.IRModule(kept, attrs=module.attrs))


def function_notes(module: tvm.IRModule) -> tuple[str, ...]:
    """Notes on the public functions that are no part of the network."""
    left = [name for name in entry_points(module) if name != "main"]
    if not left:
        return ()
    return (
        f"only 'main' is partitioned, not {', '.join(map(repr, left))}: `collage.partition_functions` makes a plan for "
        "each function",
    )
