"""All matches of a Relax dataflow pattern at a node, not just the first.

The walk follows `tvm.relax.dpl`: calls, tuples and projections are matched structurally, through variables to what
they are bound to; a pattern object that occurs twice must match the same expression twice. Where Relax's matcher
takes the first alternative that works (or-patterns, the two orders of a commutative operator, the orders of an
unordered tuple), this one goes on with the others. Patterns without structure below them (types, shapes, attributes,
constants, variables) are left to Relax's matcher.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax import dpl
from tvm.relax.dpl import pattern as patterns

from collage.graph.dataflow_graph import DataflowGraph, DataflowNode
from collage.graph.index_set import IndexSet

#: Binary operators whose arguments may be given in either order.
COMMUTATIVE = frozenset(
    {"relax.add", "relax.multiply", "relax.maximum", "relax.minimum", "relax.equal", "relax.not_equal"}
    | {"relax.logical_and", "relax.logical_or", "relax.logical_xor"}
    | {"relax.bitwise_and", "relax.bitwise_or", "relax.bitwise_xor"}
)

#: What is matched so far: pattern -> expression, and the bit set of nodes inside.
_State = tuple[Mapping[dpl.DFPattern, Any], int]


class Matcher:
    """Finds matches in one graph."""

    def __init__(self, graph: DataflowGraph) -> None:
        self.graph = graph
        self.bound = {n.var: n for n in graph.nodes if n.var is not None and n.expr is not None}
        # Of TVM's own kind, which its matcher takes as it is; a dictionary it would copy at every call.
        self.values = tvm_ffi.convert({var: node.expr for var, node in self.bound.items()})
        self._heads: dict[dpl.DFPattern, frozenset[str] | None] = {}

    def matches(self, pattern: dpl.DFPattern, root: DataflowNode) -> Iterator[tuple[IndexSet, Mapping[Any, Any]]]:
        """(nodes inside, pattern -> expression) of each way in which `pattern` matches the value of `root`."""
        if root.var is not None:
            for bindings, inside in self._match(pattern, root.var, ({}, 0)):
                yield IndexSet.from_bits(inside), bindings

    def _match(self, pattern: dpl.DFPattern, expr: Any, state: _State) -> Iterator[_State]:
        known = state[0].get(pattern)
        if known is not None:
            if known.same_as(expr):
                yield state
            return
        heads = self._heads_of(pattern)
        if heads is not None and self._operator(expr) not in heads:
            return
        for bindings, inside in self._match_new(pattern, expr, state):
            yield {**bindings, pattern: expr}, inside

    def _match_new(self, pattern: dpl.DFPattern, expr: Any, state: _State) -> Iterator[_State]:
        if isinstance(pattern, patterns.OrPattern):
            yield from self._match(pattern.left, expr, state)
            yield from self._match(pattern.right, expr, state)
        elif isinstance(pattern, patterns.AndPattern):
            yield from self._match_all([(pattern.left, expr), (pattern.right, expr)], state)
        elif isinstance(pattern, patterns.CallPattern):
            yield from self._match_call(pattern, *self._enter(expr, state))
        elif isinstance(pattern, patterns.TupleGetItemPattern):
            value, entered = self._enter(expr, state)
            if isinstance(value, relax.TupleGetItem) and pattern.index in (-1, value.index):
                yield from self._match(pattern.tuple, value.tuple_value, entered)
        elif isinstance(pattern, (patterns.TuplePattern, patterns.UnorderedTuplePattern)):
            value, entered = self._enter(expr, state)
            if isinstance(value, relax.Tuple) and len(value.fields) == len(pattern.fields):
                ordered = isinstance(pattern, patterns.TuplePattern)
                for fields in [tuple(pattern.fields)] if ordered else permutations(pattern.fields):
                    yield from self._match_all(list(zip(fields, value.fields, strict=True)), entered)
        elif isinstance(pattern, _CONSTRAINTS):
            if self._holds(pattern, expr):
                yield from self._match(pattern.pattern, expr, state)
        elif isinstance(pattern, patterns.WildcardPattern) or pattern.match(expr, self.values):
            yield state

    def _heads_of(self, pattern: dpl.DFPattern) -> frozenset[str] | None:
        """The operators of which one has to be called by what the pattern matches; None where it may be anything. Most
        nodes are none of them, and looking closer costs a hundred times more.
        """
        if pattern not in self._heads:
            self._heads[pattern] = self._find_heads(pattern)
        return self._heads[pattern]

    def _find_heads(self, pattern: dpl.DFPattern) -> frozenset[str] | None:
        if isinstance(pattern, patterns.CallPattern) and isinstance(pattern.op, patterns.ExprPattern):
            operator = pattern.op.expr
            return frozenset([operator.name]) if isinstance(operator, tvm.ir.Op) else None
        if isinstance(pattern, patterns.OrPattern):
            left, right = self._heads_of(pattern.left), self._heads_of(pattern.right)
            return None if left is None or right is None else left | right
        return self._heads_of(pattern.pattern) if isinstance(pattern, _CONSTRAINTS) else None

    def _operator(self, expr: Any) -> str:
        """The name of the operator that an expression, or what a variable is bound to, calls; "" for anything else."""
        call, _ = self._enter(expr, ({}, 0))
        return str(call.op.name) if isinstance(call, relax.Call) and isinstance(call.op, tvm.ir.Op) else ""

    def _enter(self, expr: Any, state: _State) -> tuple[Any, _State]:
        """The expression that a variable is bound to, with its node inside; an inline expression as it is."""
        node = self.bound.get(expr) if isinstance(expr, relax.Var) else None
        return (expr, state) if node is None else (node.expr, (state[0], state[1] | 1 << node.index))

    def _match_call(self, pattern: dpl.DFPattern, call: Any, state: _State) -> Iterator[_State]:
        if not isinstance(call, relax.Call):
            return
        arguments, wanted = list(call.args), list(pattern.args)
        # `varg_default_wildcard` is no attribute of the Python object; its text ends in an ellipsis.
        fewer = len(wanted) < len(arguments) and str(pattern).endswith("...)")
        if len(wanted) != len(arguments) and not fewer:
            return
        orders = [arguments[: len(wanted)]]
        if isinstance(call.op, tvm.ir.Op) and call.op.name in COMMUTATIVE and len(wanted) == 2:
            orders.append(arguments[::-1])
        for with_op in self._match(pattern.op, call.op, state):
            for order in orders:
                yield from self._match_all(list(zip(wanted, order, strict=True)), with_op)

    def _match_all(self, pairs: Sequence[tuple[dpl.DFPattern, Any]], state: _State) -> Iterator[_State]:
        if not pairs:
            yield state
            return
        (pattern, expr), rest = pairs[0], pairs[1:]
        for matched in self._match(pattern, expr, state):
            yield from self._match_all(rest, matched)

    def _holds(self, pattern: dpl.DFPattern, expr: Any) -> bool:
        """Whether the constraint alone, on anything, holds."""
        anything = dpl.wildcard()
        if isinstance(pattern, patterns.TypePattern):
            alone = patterns.TypePattern(anything, pattern.ty)
        elif isinstance(pattern, patterns.DataTypePattern):
            alone = patterns.DataTypePattern(anything, pattern.dtype)
        elif isinstance(pattern, patterns.ShapePattern):
            alone = patterns.ShapePattern(anything, pattern.shape)
        else:
            alone = patterns.AttrPattern(anything, pattern.attrs)
        return bool(alone.match(expr, self.values))


_CONSTRAINTS = (patterns.TypePattern, patterns.DataTypePattern, patterns.ShapePattern, patterns.AttrPattern)
