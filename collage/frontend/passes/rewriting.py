"""Rewriting a Relax function binding by binding: a rule sees one bound value at a time and may put another in its
place.

Simpler than an expression mutator because canonical Relax is a list of bindings: rules look at what defines an
argument and how often a variable is used, and return an expression (nested calls are fine) or None to leave the
value as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from collage.errors import FrontendError


class Scope:
    """What a rule may ask about the variables that the current value reads."""

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self._builder = builder
        self._uses: dict[Any, int] = {}

    def definition(self, expression: Any) -> Any:
        """The value bound to a variable; None for inputs, and for expressions that are no variable."""
        return self._builder.lookup_binding(expression) if isinstance(expression, relax.Var) else None

    def used_once(self, expression: Any) -> bool:
        """Whether a variable has exactly one reader."""
        return self._uses.get(expression, 1) == 1

    def record(self, variable: Any, uses: int) -> None:
        """Add readers to a variable; for `rewrite` only."""
        if isinstance(variable, relax.Var):
            self._uses[variable] = self._uses.get(variable, 0) + uses


Rule = Callable[[Any, Scope], Any]


def call_to(value: Any, *names: str) -> bool:
    """Whether a value is a call of one of these operators (names as in `relax.nn.conv2d`)."""
    return isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op) and value.op.name in names


def bindings(function: relax.Function) -> Iterator[tuple[Any, Any]]:
    """All bindings of a function without control flow, in order: (variable, value)."""
    for block in function.body.blocks:
        for binding in block.bindings:
            yield binding.var, binding.value


def rewrite(function: relax.Function, rules: Sequence[Rule]) -> tuple[relax.Function, bool]:
    """The function with each bound value replaced by what the rules make of it, and whether any rule applied.

    The result is one dataflow block that ends in the flat list of outputs; its types are deduced anew, and variables
    keep their names. Calls nested in what a rule returns, and values whose other readers are now gone, are seen in the
    next run only.
    """
    counts: Counter[Any] = Counter()
    for _, value in bindings(function):
        counts.update(variables(value))
    counts.update(variables(function.body.body))
    builder = relax.BlockBuilder()
    scope = Scope(builder)
    replaced: dict[Any, Any] = {}
    changed = False
    with builder.function("main", list(function.params)):
        with builder.dataflow():
            for parameter in function.params:
                scope.record(parameter, counts[parameter])
            for variable, value in bindings(function):
                value, applied = _apply(rules, substitute(value, replaced), scope, builder)
                if applied:
                    changed = True
                    for read in variables(value):
                        scope.record(read, 1)
                if not isinstance(value, (relax.Var, tvm.ir.GenericConst)):
                    value = builder.emit(value, name_hint=variable.name)
                    scope.record(value, counts[variable])
                else:
                    scope.record(value, counts[variable] - 1)
                replaced[variable] = value
            outputs = list(_flat(substitute(function.body.body, replaced), scope, builder))
            if not outputs:
                raise FrontendError("the network has no outputs")
            result = builder.emit_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
        builder.emit_func_output(result)
    rebuilt = builder.get()["main"]
    return rebuilt.with_attrs({**(function.attrs or {}), **(rebuilt.attrs or {})}), changed


def _apply(rules: Sequence[Rule], value: Any, scope: Scope, builder: relax.BlockBuilder) -> tuple[Any, bool]:
    """What the rules make of a value once none applies any more, and whether one did."""
    value = builder.normalize(value)
    changed = False
    while True:
        result = next((made for rule in rules if (made := rule(value, scope)) is not None), None)
        if result is None:
            return value, changed
        value, changed = builder.normalize(result), True


def _flat(result: Any, scope: Scope, builder: relax.BlockBuilder) -> Iterator[Any]:
    """The tensors of a result, tuples within tuples taken apart."""
    if isinstance(result, relax.Var) and isinstance(scope.definition(result), relax.Tuple):
        result = scope.definition(result)
    if isinstance(result, relax.Tuple):
        for entry in result.fields:
            yield from _flat(entry, scope, builder)
    elif isinstance(result.ty, relax.TupleType):
        for index in range(len(result.ty.fields)):
            yield from _flat(builder.emit(relax.TupleGetItem(result, index)), scope, builder)
    else:
        yield result


def substitute(value: Any, replaced: Mapping[Any, Any]) -> Any:
    """A bound value with variables replaced."""
    return rebuilt(value, lambda leaf: replaced.get(leaf, leaf) if isinstance(leaf, relax.Var) else leaf)


def rebuilt(value: Any, leaf: Callable[[Any], Any], attributes: Callable[[Any], Any] = lambda given: given) -> Any:
    """A bound value with its leaves (variables, constants, shapes) and the attributes of its calls replaced."""
    if isinstance(value, relax.Tuple):
        return relax.Tuple([rebuilt(entry, leaf, attributes) for entry in value.fields])
    if isinstance(value, relax.TupleGetItem):
        return relax.TupleGetItem(rebuilt(value.tuple_value, leaf, attributes), value.index)
    if isinstance(value, relax.Call):
        arguments = [rebuilt(argument, leaf, attributes) for argument in value.args]
        return relax.Call(value.op, arguments, attributes(value.attrs), value.ty_args)
    return leaf(value)


def variables(value: Any) -> Iterator[Any]:
    """The variables that an expression reads, once per reading."""
    return (leaf for leaf in leaves(value) if isinstance(leaf, relax.Var))


def leaves(value: Any) -> Iterator[Any]:
    """What a bound value is made of: variables, constants, shapes, callees."""
    if isinstance(value, relax.Tuple):
        parts: Any = value.fields
    elif isinstance(value, relax.TupleGetItem):
        parts = (value.tuple_value,)
    elif isinstance(value, relax.Call):
        parts = value.args
    else:
        yield value
        return
    for part in parts:
        yield from leaves(part)
