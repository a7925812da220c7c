"""Body: nodes of a sub-graph, rebuilt as bindings of a new function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from collage.annotations.precision import Range
from collage.compile.rewrite.values import function_type, parameters, substituted, tensors, variable
from collage.errors import PlanError
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.index_set import IndexSet
from collage.graph.kinds import NodeKind
from collage.graph.quotient import Quotient
from collage.graph.sub_graph import SubGraph


def ordered_inputs(sub_graph: SubGraph) -> list[int]:
    """The nodes that a sub-graph reads, in the order of first use: equal sub-graphs get equal signatures wherever
    they lie.
    """
    nodes, inside = sub_graph.graph.nodes, set(sub_graph.inside)
    seen: dict[int, None] = {}
    for index in sub_graph.inside:
        for source in nodes[index].inputs:
            if source not in inside and nodes[source].kind is not NodeKind.CONSTANT:
                seen.setdefault(source)
    return list(seen)


def ordered_outputs(sub_graph: SubGraph) -> list[int]:
    """The nodes that a sub-graph gives, in index order."""
    return list(sub_graph.exits)


class Body:
    """Rebuilds nodes as bindings of a new function."""

    def __init__(self, graph: DataflowGraph) -> None:
        self.graph = graph
        self.values: dict[int, Any] = {}
        self.bindings: list[Any] = []

    def parameters(self, indices: Sequence[int]) -> list[Any]:
        """Function parameters that stand for nodes outside: one for each tensor, so one for each field of a tuple."""
        params: list[Any] = []
        for index in indices:
            node = self.graph.nodes[index]
            name = node.var.name if node.var is not None else f"weight{index}"
            self.values[index] = parameters(name, node.var.ty if node.var is not None else node.expr.ty, params)
        return params

    def ranges(self, indices: Sequence[int]) -> list[Range]:
        """Of the parameters that stand for nodes outside."""
        return [self.graph.nodes[i].range for i in indices for _ in tensors(self.values[i])]

    def arguments(self, indices: Sequence[int]) -> list[Any]:
        """What stands for nodes, as arguments of a call: one for each tensor."""
        return [tensor for i in indices for tensor in tensors(self.values[i])]

    def emit(self, index: int, escapes: bool) -> None:
        """Bind one node inside; `escapes` when the function returns it."""
        node = self.graph.nodes[index]
        var = variable(node.var, escapes)
        self.bindings.append(relax.VarBinding(var, substituted(node.expr, self._lookup(index))))
        self.values[index] = var

    def call(self, call: Any, ty: Any, outputs: Sequence[int], escaping: Sequence[int]) -> None:
        """Bind nodes to the result of a call of type `ty`; of several it is a tuple, which is taken apart."""
        results = [call]
        if len(outputs) > 1:
            packed = relax.DataflowVar("results", ty)
            self.bindings.append(relax.VarBinding(packed, call))
            results = [relax.TupleGetItem(packed, position) for position in range(len(outputs))]
        for index, result in zip(outputs, results, strict=True):
            self.values[index] = variable(self.graph.nodes[index].var, index in escaping)
            self.bindings.append(relax.VarBinding(self.values[index], result))

    def function(self, params: list[Any], inside: IndexSet, outputs: Sequence[int]) -> Any:
        """A private function: one dataflow block of the nodes inside, returning one value or a tuple."""
        for index in inside:
            self.emit(index, index in outputs)
        return self.close(params, outputs)

    def composite_function(
        self,
        params: list[Any],
        inside: IndexSet,
        outputs: Sequence[int],
        composites: Sequence[tuple[str, IndexSet]],
    ) -> Any:
        """Like `function`, with each labelled group of nodes inside a nested `Composite` function.

        Raises
        ------
        PlanError
            Groups need each other's results in a circle.
        """
        labelled = {index for _, nodes in composites for index in nodes}
        groups = [*composites, *(("", IndexSet([index])) for index in inside if index not in labelled)]
        for label, nodes in (groups[position] for position in order_of_groups(self.graph, groups)):
            if label:
                self._emit_composite(label, nodes, outputs)
            else:
                self.emit(nodes.first, nodes.first in outputs)
        return self.close(params, outputs)

    def close(self, params: list[Any], outputs: Sequence[int]) -> Any:
        """The function of what was bound so far."""
        results = [self.values[index] for index in outputs]
        result = results[0] if len(results) == 1 else relax.Tuple(results)
        block = relax.DataflowBlock(self.bindings)
        types = [r.ty for r in results]
        ret = types[0] if len(types) == 1 else relax.TupleType(types)
        return relax.Function(params, relax.SeqExpr([block], result), ret, is_pure=True)

    def _emit_composite(self, label: str, nodes: IndexSet, escaping: Sequence[int]) -> None:
        sub_graph = SubGraph(self.graph, nodes)
        inputs, outputs = ordered_inputs(sub_graph), ordered_outputs(sub_graph)
        inner = Body(self.graph)
        function = inner.function(inner.parameters(inputs), nodes, outputs).with_attr("Composite", label)
        local = relax.Var("local_func", function_type(function))
        self.bindings.append(relax.VarBinding(local, function))
        self.call(relax.Call(local, self.arguments(inputs)), function.ret_ty, outputs, escaping)

    def _lookup(self, index: int) -> dict[Any, Any]:
        nodes = self.graph.nodes
        table = {}
        for source in nodes[index].inputs:
            if source in self.values:
                key = nodes[source].var if nodes[source].var is not None else nodes[source].expr
                table[key] = self.values[source]
        return table


def order_of_groups(graph: DataflowGraph, groups: Sequence[tuple[str, IndexSet]]) -> tuple[int, ...]:
    """The positions of labelled groups of nodes, each after those that it reads.

    Raises
    ------
    PlanError
        Groups need each other's results in a circle.
    """
    reads = [[source for index in nodes for source in graph.nodes[index].inputs] for _, nodes in groups]
    order = Quotient([nodes for _, nodes in groups], reads).order
    if len(order) < len(groups):
        raise PlanError(f"patterns {', '.join(label for label, _ in groups if label)} need each other's results")
    return order
