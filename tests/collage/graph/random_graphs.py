"""Random synthetic graphs, and slow, obvious definitions to compare the fast ones with."""

from __future__ import annotations

from itertools import combinations

from hypothesis import strategies as st

from collage.graph import DataflowGraph, NodeKind, OpKind

KINDS = [OpKind.ELEMENTWISE, OpKind.BROADCAST, OpKind.INJECTIVE, OpKind.REDUCTION, OpKind.ANCHOR, OpKind.OPAQUE]


@st.composite
def graphs(draw: st.DrawFn, max_operators: int = 7, kinds: list[OpKind] = KINDS, tuples: bool = False) -> DataflowGraph:
    """An input, a constant, and operators that read one or two earlier tensors; some operators escape.

    With `tuples`, some operators return a tuple, of which two projections follow, and some tensors are bound in a
    tuple.
    """
    nodes: list[tuple[str, OpKind | NodeKind, list[int]]] = [("x", NodeKind.INPUT, []), ("c", NodeKind.CONSTANT, [])]
    tensors = [0, 1]
    for _ in range(draw(st.integers(1, max_operators))):
        index = len(nodes)
        sources = [draw(st.sampled_from(tensors)) for _ in range(draw(st.integers(1, 2)))]
        form = draw(st.sampled_from(["call", "call", "split", "concat"])) if tuples else "call"
        if form == "split":
            nodes.append((f"split{index}", OpKind.INJECTIVE, sources))
            nodes += [("tuple_get", NodeKind.TUPLE_GET, [index])] * 2
            tensors += [index + 1, index + 2]
        elif form == "concat":
            nodes += [("tuple", NodeKind.TUPLE, sources), (f"concat{index}", OpKind.INJECTIVE, [index])]
            tensors.append(index + 1)
        else:
            nodes.append((f"op{index}", draw(st.sampled_from(kinds)), sources))
            tensors.append(index)
    read = {source for _, _, inputs in nodes for source in inputs}
    unread = [i for i in range(2, len(nodes)) if i not in read]
    also = draw(st.lists(st.sampled_from(tensors[2:]), max_size=2))
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


def is_acyclic(graph: DataflowGraph, parts: list[list[int]]) -> bool:
    """Whether the quotient by `parts`, and every other node alone, has no cycle."""
    owner = {node.index: -1 - node.index for node in graph.nodes}
    owner.update({i: number for number, part in enumerate(parts) for i in part})
    edges = {(owner[s], owner[n.index]) for n in graph.nodes for s in n.inputs if owner[s] != owner[n.index]}
    left = set(owner.values())
    while left:
        free = {part for part in left if not any(b == part and a in left for a, b in edges)}
        if not free:
            return False
        left -= free
    return True
