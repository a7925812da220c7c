"""Relax with static shapes -> canonical Relax, as the package's docstring defines it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

from collage.annotations.opaque import is_opaque
from collage.errors import FrontendError
from collage.frontend.passes.fold_affine import FOLDINGS
from collage.frontend.passes.fold_constants import fold_constants
from collage.frontend.passes.rewriting import Rule, bindings, rewrite
from collage.frontend.passes.simplify import SIMPLIFICATIONS
from collage.frontend.values import static_shape

#: More runs than any network has needed (4); the limit only guards against rules that undo each other.
_MAX_RUNS = 32


def canonicalise(mod: tvm.IRModule, rules: Sequence[Rule] = ()) -> tvm.IRModule:
    """Bring a module whose inputs have static shapes into canonical form; the argument is not changed.

    Parameters
    ----------
    rules
        Applied besides those of the canonical form.

    Raises
    ------
    FrontendError
        Control flow, side effects, calls of public Relax functions, or shapes that depend on data.
    """
    mod = _bind_weights(mod)
    mod = tvm.ir.transform.Sequential(
        [
            relax.transform.InlinePrivateFunctions(),
            relax.transform.DeadCodeElimination(["main"]),
            relax.transform.Normalize(),
        ]
    )(mod)
    _refuse_control_flow(mod)
    mod, _ = _rewritten(mod, ())  # one block, flat outputs: what the passes below expect
    mod = _settled(mod, rules)
    # once, between two rounds: it hashes every weight, which takes a second for BERT-base
    mod = _settled(relax.transform.EliminateCommonSubexpr()(mod), rules)
    _verify(mod)
    return mod


def _settled(mod: tvm.IRModule, rules: Sequence[Rule]) -> tvm.IRModule:
    """The module once no rule applies any more and nothing is left to fold."""
    clean = tvm.ir.transform.Sequential(
        [relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination(["main"])]
    )
    changed = True
    for _ in range(_MAX_RUNS):
        mod = clean(fold_constants(mod))
        if not changed:
            break
        mod, changed = _rewritten(mod, (*SIMPLIFICATIONS, *FOLDINGS, *rules))
    return mod


def _rewritten(mod: tvm.IRModule, rules: Any) -> tuple[tvm.IRModule, bool]:
    function, changed = rewrite(mod["main"], rules)
    functions = dict(mod.functions.items())
    functions[mod.get_global_var("main")] = function
    return tvm.IRModule(functions), changed


def _bind_weights(mod: tvm.IRModule) -> tvm.IRModule:
    """Importers may leave weights as trailing parameters, their values in an attribute: make them constants."""
    function = mod["main"]
    attributes = dict((function.attrs or {}).items())
    weights = attributes.get("params")
    if not weights:
        return mod
    trailing = list(function.params)[len(function.params) - len(weights) :]
    bound = relax.transform.BindParams("main", dict(zip(trailing, weights, strict=True)))(mod)
    bound["main"] = bound["main"].without_attr("params")
    return bound


def _refuse_control_flow(mod: tvm.IRModule) -> None:
    function = mod["main"]
    if not function.is_pure:
        raise FrontendError("the function 'main' has side effects, which cannot be compiled in partitions")
    for variable, value in bindings(function):
        if isinstance(value, relax.If):
            raise FrontendError(
                f"'{variable.name}' is computed by a branch that depends on data, which cannot be compiled"
            )
        if isinstance(value, relax.Function):
            raise FrontendError(f"'{variable.name}' is a local function, which cannot be compiled")
        if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar):
            raise FrontendError(f"'main' calls the function '{value.op.name_hint}'; only private functions are inlined")


def _verify(mod: tvm.IRModule) -> None:
    """The promises that depend on the network rather than on this package."""
    for variable, value in bindings(mod["main"]):
        if isinstance(value, relax.Call) and not is_opaque(value) and not _is_static(variable.ty):
            operator = value.op.name if isinstance(value.op, tvm.ir.Op) else str(value.op)
            raise FrontendError(
                f"the shape of '{variable.name}' ({operator}) depends on data, which cannot be compiled"
            )


def _is_static(ty: Any) -> bool:
    if isinstance(ty, relax.TupleType):
        return all(_is_static(field) for field in ty.fields)
    return not isinstance(ty, relax.TensorType) or static_shape(ty) is not None
