"""From sub-graphs back to Relax (RFC 0062, phase 4).

`extract` makes the module that is measured; `apply` makes the partitioned module that is compiled. Both build a
partition's body with the same code, so that what is measured is what runs.

A partition becomes one private function that `main` calls:

- native: a `Primitive` function with attribute `collage.backend`; weights are parameters, so that one kernel serves
  all places;
- graph: a `Codegen` function whose body is the sub-graph; weights are inside, and attributes say which products are
  in eight bits;
- library: a `Codegen` function that holds one `Composite` function per labelled pattern; of a backend of eight bits,
  an attribute says what its parameters range over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from collage.annotations.precision import INT8, INT8_POSITIONS, INT8_RANGES, UNKNOWN, Range, with_ranges
from collage.backends.base import Backend
from collage.errors import CodegenError, PlanError
from collage.graph.candidates import HOST, CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.description import describe_module, structure_hash
from collage.graph.index_set import IndexSet
from collage.graph.kinds import NodeKind
from collage.graph.quotient import Quotient
from collage.graph.sub_graph import SubGraph

#: Operators whose legalisation makes a number of a scalar constant; FuseTIR takes no other constants inside a kernel.
_FOLD_SCALARS = frozenset(
    f"relax.{name}"
    for name in (
        *("add", "subtract", "multiply", "divide", "floor_divide", "power", "mod", "floor_mod", "maximum", "minimum"),
        *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "full", "full_like", "astype"),
    )
)


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


def extract(module: Any, sub_graph: SubGraph) -> Any:
    """The sub-graph as a module of its own: `main` takes its inputs and returns its exits, weights bound as
    constants.
    """
    inputs, outputs = ordered_inputs(sub_graph), ordered_outputs(sub_graph)
    body = _Body(sub_graph.graph)
    params = body.parameters(inputs)
    func = body.function(params, sub_graph.inside, outputs).with_attr("global_symbol", "main")
    functions = {gv: f for gv, f in module.functions_items() if isinstance(f, tvm.tirx.PrimFunc)}
    result = tvm.IRModule({**functions, relax.GlobalVar("main"): func})
    result = relax.transform.Normalize()(result)
    nodes = sub_graph.graph.nodes
    if any(nodes[i].range != UNKNOWN for i in (*inputs, *sub_graph.inside)):
        result = with_ranges(result, [*body.ranges(inputs), *(nodes[i].range for i in sub_graph.inside)])
    return relax.transform.DeadCodeElimination(["main"])(result) if functions else result


def apply(
    module: Any, graph: DataflowGraph, ordered: Sequence[CandidatePartition], backends: Mapping[str, Backend]
) -> Any:
    """The partitioned module: `main` calls one function per partition; host nodes stay in `main`.

    Parameters
    ----------
    module
        The canonical module that `graph` was read from.
    ordered
        A cover in execution order (`Partitioning.candidates`).
    backends
        Name -> backend, for the style of each partition.
    """
    main = module["main"]
    writer = _MainWriter(graph, main, graph.escaping)
    others = {gv: f for gv, f in module.functions_items() if gv.name_hint != "main"}
    result = tvm.IRModule(others, attrs=module.attrs)
    kernels: dict[str, Any] = {}
    for number, candidate in enumerate(ordered):
        if candidate.backend == HOST:
            writer.host(candidate.sub_graph.inside)
            continue
        name = re.sub(r"\W", "_", f"collage_{candidate.backend}_{number}")  # a kernel's name in C, too
        partition = partition_function(graph, candidate, backends[candidate.backend], name)
        symbol = relax.GlobalVar(name)
        if backends[candidate.backend].style == "native":
            # Native partitions of equal structure differ in their weights only, which are arguments: one kernel
            # serves all.
            structure = structure_hash(
                describe_module(tvm.IRModule({**others, relax.GlobalVar("main"): partition.function}))
            )
            symbol = kernels.setdefault(structure, symbol)
        if symbol.name_hint == name:
            relax.expr._update_type(symbol, function_type(partition.function))
            result[symbol] = partition.function
        writer.call(symbol, partition)
    result[module.get_global_var("main")] = writer.finish()
    return relax.transform.Normalize()(result)


def with_outputs(module: Any, graph: DataflowGraph, indices: Sequence[int]) -> Any:
    """The module with a `main` that returns the given nodes instead of its own result, as one flat tuple of tensors."""
    writer = _MainWriter(graph, module["main"], IndexSet(indices))
    writer.host(graph.coverable)
    outputs = []
    for index in indices:
        value = writer.values[graph.nodes[index].var]
        if not isinstance(value.ty, relax.TupleType):
            outputs.append(value)
            continue
        for position, ty in enumerate(value.ty.fields):
            field = relax.Var(f"{value.name}_{position}", ty)
            writer.bindings.append(relax.VarBinding(field, relax.TupleGetItem(value, position)))
            outputs.append(field)
    body = relax.SeqExpr([relax.DataflowBlock(writer.bindings)], relax.Tuple(outputs))
    main = relax.Function(list(module["main"].params), body, relax.TupleType([o.ty for o in outputs]), is_pure=True)
    result = tvm.IRModule({gv: f for gv, f in module.functions_items() if gv.name_hint != "main"}, attrs=module.attrs)
    result[relax.GlobalVar("main")] = main.with_attr("global_symbol", "main")
    return relax.transform.Normalize()(result)


@dataclass(frozen=True)
class Partition:
    """The function of a partition.

    Attributes
    ----------
    function
        Relax function with the attributes of its style.
    inputs
        Nodes that its call reads, in parameter order; a tuple is as many parameters as it has fields.
    weights
        Constants that follow as parameters; native partitions only.
    outputs
        Nodes that it gives.
    """

    function: Any
    inputs: tuple[int, ...]
    weights: tuple[int, ...]
    outputs: tuple[int, ...]


def partition_function(graph: DataflowGraph, candidate: CandidatePartition, backend: Backend, symbol: str) -> Partition:
    """The function of one partition, in the style of its backend; external code generators name what they make
    `symbol`.

    Raises
    ------
    CodegenError
        A native partition has labelled patterns inside.
    """
    sub_graph = candidate.sub_graph
    inputs, outputs = ordered_inputs(sub_graph), ordered_outputs(sub_graph)
    body = _Body(graph)
    if backend.style == "native":
        if candidate.composites:
            labels = ", ".join(label for label, _ in candidate.composites)
            raise CodegenError(f"a kernel of {backend.name} cannot call a library: {labels} inside {candidate}")
        weights = _weights(graph, sub_graph.inside)
        params = body.parameters([*inputs, *weights])
        attrs: dict[str, Any] = {"Primitive": 1, "collage.backend": backend.name}
        function = body.function(params, sub_graph.inside, outputs).with_attrs(attrs)
        return Partition(function, tuple(inputs), tuple(weights), tuple(outputs))
    params = body.parameters(inputs)
    attrs = {"Codegen": backend.name, "global_symbol": symbol, **_quantised(candidate, body.ranges(inputs))}
    if backend.style == "library":
        if backend.precision == INT8:
            attrs[INT8_RANGES] = [end for ends in body.ranges(inputs) for end in ends]
        function = body.composite_function(params, sub_graph.inside, outputs, candidate.composites)
    else:
        function = body.function(params, sub_graph.inside, outputs)
    return Partition(function.with_attrs(attrs), tuple(inputs), (), tuple(outputs))


def _quantised(candidate: CandidatePartition, given: Sequence[Range]) -> dict[str, Any]:
    """Attributes that say which bindings are in eight bits, and what parameters (`given`) and bindings range over."""
    labelled = [index for label, nodes in candidate.composites if label == INT8 for index in nodes]
    if not labelled:
        return {}
    inside, nodes = candidate.sub_graph.inside, candidate.sub_graph.graph.nodes
    position = {index: i for i, index in enumerate(inside)}
    ends = [end for each in (*given, *(nodes[index].range for index in inside)) for end in each]
    return {INT8_POSITIONS: [position[index] for index in sorted(labelled)], INT8_RANGES: ends}


def _weights(graph: DataflowGraph, inside: IndexSet) -> list[int]:
    """Constants that a native partition takes as arguments: all but scalars of operators that fold them into the
    kernel.
    """
    seen: dict[int, None] = {}
    for index in inside:
        folds = graph.nodes[index].op in _FOLD_SCALARS
        for source in graph.nodes[index].inputs:
            node = graph.nodes[source]
            if node.kind is NodeKind.CONSTANT and not (folds and len(node.expr.value.shape) == 0):
                seen.setdefault(source)
    return list(seen)


class _Body:
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
            self.values[index] = _parameters(name, node.var.ty if node.var is not None else node.expr.ty, params)
        return params

    def ranges(self, indices: Sequence[int]) -> list[Range]:
        """Of the parameters that stand for nodes outside."""
        return [self.graph.nodes[i].range for i in indices for _ in _tensors(self.values[i])]

    def emit(self, index: int, escapes: bool) -> None:
        """Bind one node inside; `escapes` when the function returns it."""
        node = self.graph.nodes[index]
        var = _variable(node.var, escapes)
        self.bindings.append(relax.VarBinding(var, _substitute(node.expr, self._lookup(index))))
        self.values[index] = var

    def function(self, params: list[Any], inside: IndexSet, outputs: Sequence[int]) -> Any:
        """A private function: one dataflow block of the nodes inside, returning one value or a tuple."""
        for index in inside:
            self.emit(index, index in outputs)
        return self._close(params, outputs)

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
        reads = [[source for index in nodes for source in self.graph.nodes[index].inputs] for _, nodes in groups]
        order = Quotient([nodes for _, nodes in groups], reads).order
        if len(order) < len(groups):
            raise PlanError(f"patterns {', '.join(label for label, _ in composites)} need each other's results")
        for label, nodes in (groups[position] for position in order):
            if label:
                self._emit_composite(label, nodes, outputs)
            else:
                self.emit(nodes.first, nodes.first in outputs)
        return self._close(params, outputs)

    def _emit_composite(self, label: str, nodes: IndexSet, escaping: Sequence[int]) -> None:
        """Call a function of the nodes; of several results it returns a tuple, which is taken apart."""
        sub_graph = SubGraph(self.graph, nodes)
        inputs, outputs = ordered_inputs(sub_graph), ordered_outputs(sub_graph)
        inner = _Body(self.graph)
        function = inner.function(inner.parameters(inputs), nodes, outputs).with_attr("Composite", label)
        local = relax.Var("local_func", function_type(function))
        self.bindings.append(relax.VarBinding(local, function))
        call = relax.Call(local, [tensor for i in inputs for tensor in _tensors(self.values[i])])
        results = [call]
        if len(outputs) > 1:
            packed = relax.DataflowVar("results", function.ret_ty)
            self.bindings.append(relax.VarBinding(packed, call))
            results = [relax.TupleGetItem(packed, position) for position in range(len(outputs))]
        for index, result in zip(outputs, results, strict=True):
            self.values[index] = _variable(self.graph.nodes[index].var, index in escaping)
            self.bindings.append(relax.VarBinding(self.values[index], result))

    def _close(self, params: list[Any], outputs: Sequence[int]) -> Any:
        results = [self.values[index] for index in outputs]
        result = results[0] if len(results) == 1 else relax.Tuple(results)
        block = relax.DataflowBlock(self.bindings)
        types = [r.ty for r in results]
        ret = types[0] if len(types) == 1 else relax.TupleType(types)
        return relax.Function(params, relax.SeqExpr([block], result), ret, is_pure=True)

    def _lookup(self, index: int) -> dict[Any, Any]:
        nodes = self.graph.nodes
        table = {}
        for source in nodes[index].inputs:
            if source in self.values:
                key = nodes[source].var if nodes[source].var is not None else nodes[source].expr
                table[key] = self.values[source]
        return table


class _MainWriter:
    """Writes `main` anew: calls of partitions, host nodes as they were, and the original result."""

    def __init__(self, graph: DataflowGraph, main: Any, escaping: IndexSet) -> None:
        self.graph = graph
        self.main = main
        self.escaping = escaping
        self.values: dict[Any, Any] = {p: p for p in main.params}
        self.bindings: list[Any] = []

    def host(self, inside: IndexSet) -> None:
        for index in inside:
            node = self.graph.nodes[index]
            self._bind(index, _substitute(node.expr, self.values))

    def call(self, symbol: Any, partition: Partition) -> None:
        arguments = [a for i in (*partition.inputs, *partition.weights) for a in self._fields(self._value(i))]
        call = relax.Call(symbol, arguments)
        if len(partition.outputs) == 1:
            self._bind(partition.outputs[0], call)
            return
        packed = relax.DataflowVar(f"{symbol.name_hint}_out", partition.function.ret_ty)
        self.bindings.append(relax.VarBinding(packed, call))
        for position, index in enumerate(partition.outputs):
            self._bind(index, relax.TupleGetItem(packed, position))

    def finish(self) -> Any:
        result = self.main.body.body
        blocks = [relax.DataflowBlock(self.bindings)] if self.bindings else []
        body = relax.SeqExpr(blocks, _substitute(result, self.values))
        return relax.Function(list(self.main.params), body, self.main.ret_ty, is_pure=True).with_attrs(self.main.attrs)

    def _bind(self, index: int, value: Any) -> None:
        old = self.graph.nodes[index].var
        var = _variable(old, index in self.escaping)
        self.bindings.append(relax.VarBinding(var, value))
        self.values[old] = var

    def _fields(self, value: Any) -> Iterator[Any]:
        """The tensors of a value: itself, or what is in a tuple."""
        if not isinstance(value.ty, relax.TupleType):
            yield value
            return
        for position, ty in enumerate(value.ty.fields):
            field = relax.DataflowVar(f"{value.name}_{position}", ty)
            self.bindings.append(relax.VarBinding(field, relax.TupleGetItem(value, position)))
            yield from self._fields(field)

    def _value(self, index: int) -> Any:
        node = self.graph.nodes[index]
        return node.expr if node.kind is NodeKind.CONSTANT else self.values[node.var]


def _parameters(name: str, ty: Any, params: list[Any]) -> Any:
    """What stands for a value of this type, after its parameters were appended to `params`."""
    if isinstance(ty, relax.TupleType):
        return relax.Tuple([_parameters(f"{name}_{i}", field, params) for i, field in enumerate(ty.fields)])
    params.append(relax.Var(name, ty))
    return params[-1]


def _tensors(value: Any) -> Iterator[Any]:
    """The tensors in what stands for a value: `_parameters`, backwards."""
    if isinstance(value, relax.Tuple):
        for field in value.fields:
            yield from _tensors(field)
    else:
        yield value


def _variable(old: Any, escapes: bool) -> Any:
    """A fresh variable like `old`: a dataflow variable, unless its value leaves the block."""
    return (relax.Var if escapes else relax.DataflowVar)(old.name, old.ty)


def _substitute(expr: Any, table: Mapping[Any, Any]) -> Any:
    """Replace variables, and constants that have become parameters, in one binding's value."""
    if expr in table:
        return table[expr]
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([_substitute(f, table) for f in expr.fields])
    if isinstance(expr, relax.TupleGetItem):
        return relax.TupleGetItem(_substitute(expr.tuple_value, table), expr.index)
    if isinstance(expr, relax.Call):
        args = [_substitute(a, table) for a in expr.args]
        return relax.Call(expr.op, args, expr.attrs, expr.ty_args, ret_ty=expr.ty)
    return expr


def function_type(function: Any) -> Any:
    """The type of a Relax function, for the global variable that names it."""
    return relax.FuncType([p.ty for p in function.params], function.ret_ty)
