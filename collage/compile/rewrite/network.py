"""The network's `main`, written anew: with calls of partitions, or with other results."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from collage.backends.base import Backend
from collage.compile.rewrite.on_file import apply_file, file_partition
from collage.compile.rewrite.partition import Partition
from collage.compile.rewrite.steps import steps_of
from collage.compile.rewrite.values import function_type, substituted, variable
from collage.graph.candidates import HOST, CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.description import describe_module, structure_hash
from collage.graph.index_set import IndexSet
from collage.graph.kinds import NodeKind


def apply(
    module: Any, graph: DataflowGraph, ordered: Sequence[CandidatePartition], backends: Mapping[str, Backend]
) -> Any:
    """The partitioned module: `main` calls the functions of partitions; host nodes stay in `main`.

    Parameters
    ----------
    module
        The canonical module that `graph` was read from.
    ordered
        A cover in execution order (`Partitioning.candidates`).
    backends
        Name -> backend, for the style of each partition.

    Raises
    ------
    CodegenError
        The placement runs the network's ONNX file, which is not there any more.
    """
    on_file = file_partition(ordered)
    if on_file is not None:
        return apply_file(module, on_file, f"collage_{on_file.backend}_0")
    main = module["main"]
    writer = _MainWriter(graph, main, graph.escaping)
    others = {gv: f for gv, f in module.functions_items() if gv.name_hint != "main"}
    result = tvm.IRModule(others, attrs=module.attrs)
    kernels: dict[tuple[str, bool, str], Any] = {}
    for number, candidate in enumerate(ordered):
        if candidate.backend == HOST:
            writer.host(candidate.sub_graph.inside)
            continue
        name = re.sub(r"\W", "_", f"collage_{candidate.backend}_{number}")  # a kernel's name in C, too
        for step in steps_of(graph, candidate, backends[candidate.backend], name):
            symbol = relax.GlobalVar(step.symbol)
            if step.backend.style == "native":
                # Kernels of equal structure differ in their weights only, which are arguments: one serves all. What is
                # timed inside the whole is told apart by the names of first steps.
                structure = structure_hash(
                    describe_module(tvm.IRModule({**others, relax.GlobalVar("main"): step.function}))
                )
                symbol = kernels.setdefault((step.backend.name, step.symbol == name, structure), symbol)
            if symbol.name_hint == step.symbol:
                relax.expr._update_type(symbol, function_type(step.function))
                result[symbol] = step.function
            writer.call(symbol, step)
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
            self._bind(index, substituted(node.expr, self.values))

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
        body = relax.SeqExpr(blocks, substituted(result, self.values))
        return relax.Function(list(self.main.params), body, self.main.ret_ty, is_pure=True).with_attrs(self.main.attrs)

    def _bind(self, index: int, value: Any) -> None:
        old = self.graph.nodes[index].var
        var = variable(old, index in self.escaping)
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
