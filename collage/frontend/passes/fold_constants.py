"""Folding what depends on nothing but constants.

The constant part is taken out into a module of its own, compiled, run, and the results put back. TVM's `FoldConstant`
does less at more cost: it keeps casts of scalars and everything that comes out of a tuple, and it lowers every
operator of a module before it looks whether its arguments are constant (2 s a run on a network of 900 operators).
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from collage.frontend.passes.rewriting import bindings, call_to, substitute, variables

#: Calls whose result is not a function of their arguments, or that TVM does not run.
_KEPT = ("relax.multinomial_from_uniform", "relax.call_pure_packed")


def fold_constants(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with each tensor that depends on constants alone, and that something else reads, as a constant.

    `main` is one block.
    """
    function = mod["main"]
    constant: dict[Any, Any] = {}
    needed: dict[Any, None] = {}
    for variable, value in bindings(function):
        reads = list(variables(value))
        foldable = isinstance(value, relax.Call) and not call_to(value, *_KEPT)
        if (foldable or isinstance(value, (relax.Tuple, relax.TupleGetItem))) and all(
            read in constant for read in reads
        ):
            constant[variable] = value
        else:
            needed.update(dict.fromkeys(read for read in reads if read in constant))
    needed.update(dict.fromkeys(read for read in variables(function.body.body) if read in constant))
    wanted = [variable for variable in needed if isinstance(variable.ty, relax.TensorType)]
    if not wanted:
        return mod
    known = dict(zip(wanted, _evaluate(mod, constant, wanted), strict=False))
    return _with_constants(mod, known)


def _evaluate(mod: tvm.IRModule, constant: dict[Any, Any], wanted: list[Any]) -> list[Any]:
    """The value of each wanted variable, as a constant; nothing when TVM cannot compile one of the operators."""
    builder = relax.BlockBuilder()
    built: dict[Any, Any] = {}
    with builder.function("main", []):
        with builder.dataflow():
            for variable, value in constant.items():
                built[variable] = builder.emit(substitute(value, built), name_hint=variable.name)
            result = builder.emit_output(relax.Tuple([built[variable] for variable in wanted]))
        builder.emit_func_output(result)
    functions = dict(mod.functions.items())
    functions[mod.get_global_var("main")] = builder.get()["main"]
    try:
        machine = relax.VirtualMachine(tvm.compile(tvm.IRModule(functions), target="llvm"), tvm.cpu())
        return [relax.const(tensor, str(tensor.dtype)) for tensor in machine["main"]()]
    except (RuntimeError, ValueError, TypeError):  # the operator is left for a backend that knows it, or for its error
        return []


def _with_constants(mod: tvm.IRModule, known: dict[Any, Any]) -> tvm.IRModule:
    """The module with constants in place of these variables; their bindings are left for dead code elimination."""
    if not known:
        return mod
    function = mod["main"]
    block = function.body.blocks[0]
    rebound = [
        relax.VarBinding(binding.var, known.get(binding.var, substitute(binding.value, known)))
        for binding in block.bindings
    ]
    body = relax.SeqExpr([relax.DataflowBlock(rebound)], substitute(function.body.body, known))
    functions = dict(mod.functions.items())
    functions[mod.get_global_var("main")] = relax.Function(function.params, body, function.ret_ty, attrs=function.attrs)
    return tvm.IRModule(functions)
