"""Small synthetic networks, and shorthand for what rules find in them."""

from __future__ import annotations

from collage.graph import DataflowGraph, NodeKind, OpKind
from collage.rules import CombineByKind, PartitionRule
from collage.rules.base import PartitionSpec

E, B, I, R, A, O = (  # noqa: E741
    OpKind.ELEMENTWISE,
    OpKind.BROADCAST,
    OpKind.INJECTIVE,
    OpKind.REDUCTION,
    OpKind.ANCHOR,
    OpKind.OPAQUE,
)
IN, CONST, TUPLE, GET = NodeKind.INPUT, NodeKind.CONSTANT, NodeKind.TUPLE, NodeKind.TUPLE_GET

#: Joins any two neighbours: for backends that fuse as they like.
ANYTHING = CombineByKind(O, O)

#: A set of nodes, written as a sorted tuple.
Nodes = tuple[int, ...]


def found(rule: PartitionRule, graph: DataflowGraph) -> list[Nodes]:
    """The node sets of the candidates, in the order in which the rule gives them."""
    return [tuple(c.sub_graph.inside) for c in PartitionSpec(rule, "b").candidates(graph)]


def gpt2_fragment() -> DataflowGraph:
    """The fragment of GPT-2 on which the RFC counts candidates."""
    nodes: list[tuple[str, OpKind | NodeKind, list[int]]] = [("x", IN, [])]
    nodes += [("input", IN, [])] * 4 + [("const", CONST, [])]
    calls: dict[int, tuple[str, OpKind, list[int]]] = {
        6: ("dense", A, [0, 5]),
        8: ("add", B, [6, 7]),
        9: ("reshape", I, [8]),
        11: ("multiply", B, [9]),
        15: ("power", B, [9]),
        17: ("multiply", B, [15]),
        18: ("add", B, [9, 17]),
        20: ("multiply", B, [18]),
        21: ("tanh", E, [20]),
        23: ("add", B, [21]),
        24: ("multiply", B, [11, 23]),
    }
    for index in range(6, 25):
        nodes.append(calls.get(index, ("const", CONST, [])))
    return DataflowGraph.from_edges(nodes)


def fan_out() -> DataflowGraph:
    """a -> b, a -> c."""
    return DataflowGraph.from_edges([("x", IN, []), ("a", E, [0]), ("b", E, [1]), ("c", E, [1])])


def chain(length: int) -> DataflowGraph:
    return DataflowGraph.from_edges([("x", IN, []), *(("relu", E, [i]) for i in range(length))])


def residual_network(blocks: int) -> DataflowGraph:
    """Blocks of conv, relu, conv, add(conv, input of the block), relu: five nodes each, from node 1."""
    nodes: list[tuple[str, OpKind | NodeKind, list[int]]] = [("x", IN, [])]
    for _ in range(blocks):
        start = len(nodes) - 1
        nodes += [("conv", A, [start]), ("relu", E, [start + 1]), ("conv", A, [start + 2])]
        nodes += [("add", B, [start, start + 3]), ("relu", E, [start + 4])]
    return DataflowGraph.from_edges(nodes)


def cell_network(cells: int) -> DataflowGraph:
    """Cells that read the two cells before them: conv, conv, concat of both; three nodes each, from node 2."""
    nodes: list[tuple[str, OpKind | NodeKind, list[int]]] = [("x", IN, []), ("y", IN, [])]
    before, last = 0, 1
    for _ in range(cells):
        at = len(nodes)
        nodes += [("conv", A, [before]), ("conv", A, [last]), ("concat", I, [at, at + 1])]
        before, last = last, at + 2
    nodes.append(("add", B, [before, last]))
    return DataflowGraph.from_edges(nodes)
