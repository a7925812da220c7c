"""Random synthetic graphs, and slow, obvious definitions to compare the fast ones with."""

from __future__ import annotations

from itertools import combinations

from hypothesis import strategies as st

from collage.graph import DataflowGraph, NodeKind, OpKind

KINDS = [OpKind.ELEMENTWISE, OpKind.BROADCAST, OpKind.INJECTIVE, OpKind.REDUCTION, OpKind.ANCHOR, OpKind.OPAQUE]


@st.composite
def graphs(draw: st.DrawFn, max_operators: int = 7, kinds: list[OpKind] = KINDS) -> DataflowGraph:
    """An input, perhaps a constant, and operators that read one or two earlier nodes; some operators escape."""
    nodes: list[tuple[str, OpKind | NodeKind, list[int]]] = [("x", NodeKind.INPUT, []), ("c", NodeKind.CONSTANT, [])]
    for index in range(2, 2 + draw(st.integers(1, max_operators))):
        sources = draw(st.lists(st.integers(0, index - 1), min_size=1, max_size=2))
        nodes.append((f"op{index}", draw(st.sampled_from(kinds)), sources))
    read = {source for _, _, inputs in nodes for source in inputs}
    unread = [i for i in range(2, len(nodes)) if i not in read]
    also = draw(st.lists(st.integers(2, len(nodes) - 1), max_size=2))
    return DataflowGraph.from_edges(nodes, escaping=[*unread, *also])


def subsets(graph: DataflowGraph) -> list[frozenset[int]]:
    """All non-empty sets of operators."""
    operators = list(graph.coverable)
    return [frozenset(c) for size in range(1, len(operators) + 1) for c in combinations(operators, size)]


def flows(graph: DataflowGraph) -> set[tuple[int, int]]:
    """(a, b) for every path from a to b, by repeated extension of edges."""
    pairs = {(source, node.index) for node in graph.nodes for source in node.inputs}
    while True:
        longer = {(a, d) for a, b in pairs for c, d in pairs if b == c} | pairs
        if longer == pairs:
            return pairs
        pairs = longer


def is_convex(graph: DataflowGraph, inside: frozenset[int]) -> bool:
    paths = flows(graph)
    outside = [node.index for node in graph.nodes if node.index not in inside]
    return not any((a, w) in paths and (w, b) in paths for w in outside for a in inside for b in inside)


def longest_path(graph: DataflowGraph, inside: frozenset[int]) -> int:
    """Number of nodes on the longest path inside, by trying every path."""

    def from_node(index: int) -> int:
        return 1 + max((from_node(r) for r in graph.nodes[index].outputs if r in inside), default=0)

    return max(from_node(index) for index in inside)
