"""DataflowGraph: the nodes of one Relax dataflow block, indexed in topological order (RFC 0062, "DataflowGraph").

Nodes are the block's bindings (calls, tuples, tuple projections) and its inputs and constants. If i < j, j cannot
flow into i. Everything after the rules works on indices and bit sets only; `collage.graph.from_relax` is the one
place that reads Relax.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from collage.annotations.precision import UNKNOWN, Range
from collage.graph.index_set import IndexSet
from collage.graph.kinds import NodeKind, OpKind, ValueKind
from collage.graph.quotient import reachable


@dataclass(frozen=True, eq=False)
class DataflowNode:
    """One value of the dataflow block.

    Attributes
    ----------
    index
        Position in `DataflowGraph.nodes`; topological.
    kind
        What the node stands for.
    op
        Operator name, such as "relax.nn.conv2d"; "onnx.LSTM" of an opaque node; "call_tir:<PrimFunc>"
        for a call of a TIR function; "tuple", "tuple_get", "input" or "constant" for the rest.
    inputs
        Indices of the nodes that it reads, distinct, in argument order (constants included).
    outputs
        Indices of the nodes that read it, ascending.
    op_kind
        How freely it fuses.
    escapes
        Whether the function's result uses it.
    var
        The Relax variable that it is bound to; None for constants and synthetic graphs.
    expr
        The bound Relax expression, or the constant; None for inputs and synthetic graphs.
    value
        Whether its value is a tensor, a tuple, or something else.
    size
        Bytes of its value; 0 where they are not known.
    place
        The device that it has to be computed on; "" where that may be any, and of all but calls.
    range
        The lowest and the highest number that it held in calibration; `UNKNOWN` where that is not known.
    reads_finite
        Whether all that it reads is known to be finite, of operators for which that matters (`collage.graph.finite`).
    """

    index: int
    kind: NodeKind
    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    op_kind: OpKind
    escapes: bool
    var: Any = None
    expr: Any = None
    value: ValueKind = ValueKind.TENSOR
    size: int = 0
    place: str = ""
    range: Range = UNKNOWN
    reads_finite: bool = False

    @property
    def is_coverable(self) -> bool:
        """Whether a cover has to account for it: inputs and constants are given."""
        return self.kind not in (NodeKind.INPUT, NodeKind.CONSTANT)

    def __str__(self) -> str:
        return f"{self.op} (node {self.index})"


@dataclass(frozen=True)
class NodeSpec:
    """What is needed to make one node; `outputs` follow from the others' `inputs`."""

    kind: NodeKind
    op: str
    inputs: tuple[int, ...]
    op_kind: OpKind
    var: Any = None
    expr: Any = None
    value: ValueKind = ValueKind.TENSOR
    size: int = 0
    place: str = ""
    range: Range = UNKNOWN
    reads_finite: bool = False


class DataflowGraph:
    """An immutable dataflow graph; nodes in topological order."""

    def __init__(self, specs: Sequence[NodeSpec], escaping: Iterable[int]) -> None:
        outputs: list[list[int]] = [[] for _ in specs]
        for index, spec in enumerate(specs):
            for source in dict.fromkeys(spec.inputs):
                if not 0 <= source < index:
                    raise ValueError(f"node {index} ({spec.op}) reads node {source}: indices must be topological")
                outputs[source].append(index)
        result = frozenset(escaping)
        if not result <= frozenset(range(len(specs))):
            raise ValueError(f"escaping nodes {sorted(result)} are not all among the {len(specs)} nodes")
        self.nodes: tuple[DataflowNode, ...] = tuple(
            DataflowNode(
                index=index,
                kind=spec.kind,
                op=spec.op,
                inputs=tuple(dict.fromkeys(spec.inputs)),
                outputs=tuple(outputs[index]),
                op_kind=spec.op_kind,
                escapes=index in result,
                var=spec.var,
                expr=spec.expr,
                value=spec.value,
                size=spec.size,
                place=spec.place,
                range=spec.range,
                reads_finite=spec.reads_finite,
            )
            for index, spec in enumerate(specs)
        )
        self.escaping = IndexSet(result)

    @classmethod
    def from_edges(
        cls,
        nodes: Iterable[tuple[str, OpKind | NodeKind, Sequence[int]]],
        escaping: Iterable[int] | None = None,
        sizes: Sequence[int] | None = None,
    ) -> DataflowGraph:
        """A synthetic graph, for tests and benchmarks.

        Parameters
        ----------
        nodes
            (operator, kind, indices that it reads), in topological order. An `OpKind` makes a call of that kind
            (`OpKind.TUPLE` a tuple); a `NodeKind` makes an input, a constant, a tuple, a projection, or an opaque call.
        escaping
            Nodes that the result uses; by default every call, tuple and projection without a reader.
        sizes
            Bytes of every node's value; by default none is known.
        """
        listed = [(op, kind, tuple(inputs)) for op, kind, inputs in nodes]
        projected = {source for _, kind, inputs in listed if kind is NodeKind.TUPLE_GET for source in inputs}
        specs = [_spec_of(op, kind, inputs, i in projected) for i, (op, kind, inputs) in enumerate(listed)]
        if escaping is None:
            read = {source for spec in specs for source in spec.inputs}
            given = (NodeKind.INPUT, NodeKind.CONSTANT)
            escaping = [i for i, spec in enumerate(specs) if i not in read and spec.kind not in given]
        if sizes is not None:
            specs = [replace(spec, size=size) for spec, size in zip(specs, sizes, strict=True)]
        return cls(specs, escaping)

    @cached_property
    def inputs(self) -> IndexSet:
        return self._of_kind(NodeKind.INPUT)

    @cached_property
    def constants(self) -> IndexSet:
        return self._of_kind(NodeKind.CONSTANT)

    @cached_property
    def coverable(self) -> IndexSet:
        """Calls, tuples and projections: what a cover accounts for."""
        return self._of_kind(NodeKind.CALL, NodeKind.TUPLE, NodeKind.TUPLE_GET)

    @cached_property
    def data_inputs(self) -> tuple[tuple[int, ...], ...]:
        """Per node, the nodes that it reads without the constants."""
        constant = [node.kind is NodeKind.CONSTANT for node in self.nodes]
        return tuple(tuple(i for i in node.inputs if not constant[i]) for node in self.nodes)

    @cached_property
    def downstream(self) -> tuple[int, ...]:
        """Per node, the bit set of all nodes that it flows into, itself not included. Computed when first asked for."""
        return reachable([node.outputs for node in self.nodes], reversed(range(len(self.nodes))))

    @cached_property
    def upstream(self) -> tuple[int, ...]:
        """Per node, the bit set of all nodes that flow into it, itself not included. Computed when first asked for."""
        return reachable([node.inputs for node in self.nodes], range(len(self.nodes)))

    def _of_kind(self, *kinds: NodeKind) -> IndexSet:
        return IndexSet(node.index for node in self.nodes if node.kind in kinds)

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        sizes = f"{len(self.coverable)} operators, {len(self.inputs)} inputs, {len(self.constants)} constants"
        return f"<DataflowGraph: {sizes}>"


def _spec_of(op: str, kind: OpKind | NodeKind, inputs: tuple[int, ...], projected: bool) -> NodeSpec:
    if isinstance(kind, OpKind):
        op_kind, kind = kind, NodeKind.TUPLE if kind is OpKind.TUPLE else NodeKind.CALL
    else:
        kinds = {NodeKind.CALL: OpKind.OPAQUE, NodeKind.TUPLE: OpKind.TUPLE, NodeKind.TUPLE_GET: OpKind.INJECTIVE}
        op_kind = kinds.get(kind, OpKind.ELEMENTWISE)
    value = ValueKind.TUPLE if projected or kind is NodeKind.TUPLE else ValueKind.TENSOR
    return NodeSpec(kind, op, inputs, op_kind, value=value)
