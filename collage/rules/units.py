"""Units: the smallest pieces from which regions for a graph backend are made.

Only tensors may cross the boundary of an external function. A node whose value is a tuple is therefore inseparable
from those that read it (a split from its projections, a bound tuple from its concatenate): together they are an
*atom*. A *unit* is a chain of atoms that any library runs as one: an operator and the elementwise or broadcast
operators that follow it, each the only reader of the one before. The quotient of the graph by its units is acyclic,
because a path can leave a unit only at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from collage.graph.dataflow_graph import DataflowGraph, DataflowNode
from collage.graph.index_set import IndexSet
from collage.graph.kinds import NodeKind, OpKind, ValueKind
from collage.graph.quotient import DisjointSets, Quotient
from collage.graph.sub_graph import SubGraph

Supports = Callable[[DataflowNode], bool]


@dataclass(frozen=True)
class Units:
    """The units of a graph, in topological order, with the edges between them.

    Attributes
    ----------
    graph
        The graph that they are a partition of (inputs and constants left out).
    members
        Per unit, its nodes, ascending.
    supported
        Per unit, whether the backend takes all of its calls.
    inputs
        Per unit, the units that it reads, ascending.
    outputs
        Per unit, the units that read it, ascending.
    escapes
        Per unit, whether the function's result reads it.
    """

    graph: DataflowGraph
    members: tuple[tuple[int, ...], ...]
    supported: tuple[bool, ...]
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    escapes: tuple[bool, ...]

    def __len__(self) -> int:
        return len(self.members)

    def nodes(self, units: Iterable[int]) -> list[int]:
        return [node for unit in units for node in self.members[unit]]


def atoms_of(graph: DataflowGraph, supports: Supports) -> list[tuple[tuple[int, ...], bool]]:
    """The atoms, by first node, and whether each is supported.

    An atom that is not convex, or whose tuple the function returns, is split into its nodes, none of them supported.
    """
    inseparable = DisjointSets()
    for index in graph.coverable:
        node = graph.nodes[index]
        if node.value is ValueKind.TUPLE:
            for reader in node.outputs:
                inseparable.join(index, reader)
    atoms: list[tuple[tuple[int, ...], bool]] = []
    for group in inseparable.groups(graph.coverable):
        nodes = [graph.nodes[i] for i in group]
        alone = len(nodes) == 1
        if alone or (SubGraph(graph, IndexSet(group)).is_convex and not _returns_tuple(nodes)):
            takes = all(supports(n) for n in nodes if n.kind is NodeKind.CALL)
            atoms.append((tuple(group), takes and not (alone and nodes[0].kind is not NodeKind.CALL)))
        else:
            atoms.extend(((index,), False) for index in group)
    return sorted(atoms)


def _returns_tuple(nodes: Sequence[DataflowNode]) -> bool:
    return any(node.escapes and node.value is ValueKind.TUPLE for node in nodes)


def units_of(graph: DataflowGraph, supports: Supports, max_chain: int) -> Units:
    """The units: atoms, and chains of at most `max_chain` of them (0: atoms only)."""
    atoms = atoms_of(graph, supports)
    owner = {node: i for i, (nodes, _) in enumerate(atoms) for node in nodes}
    chain_of = list(range(len(atoms)))
    length = [1] * len(atoms)
    for i, (nodes, takes) in enumerate(atoms):
        node = graph.nodes[nodes[0]]
        follows = takes and len(nodes) == 1 and node.op_kind <= OpKind.BROADCAST
        sources = [s for s in graph.data_inputs[node.index] if s in owner] if follows else []
        if not sources:
            continue
        before = chain_of[owner[max(sources)]]
        last = graph.nodes[max(sources)]
        atom, takes = atoms[owner[last.index]]
        only_reader = len(atom) == 1 and last.outputs == (node.index,) and not last.escapes
        if takes and only_reader and length[before] < max_chain:
            chain_of[i] = before
            length[before] += 1
    chains: dict[int, list[int]] = {}
    for i, chain in enumerate(chain_of):
        chains.setdefault(chain, []).extend(atoms[i][0])
    return _quotient(graph, [(tuple(sorted(nodes)), atoms[first][1]) for first, nodes in chains.items()])


def _quotient(graph: DataflowGraph, groups: Sequence[tuple[tuple[int, ...], bool]]) -> Units:
    """The units with their edges, in a topological order that follows the nodes' where it can."""
    members = [nodes for nodes, _ in groups]
    quotient = Quotient(members, [[s for n in nodes for s in graph.data_inputs[n]] for nodes in members])
    order = quotient.order
    place = {i: position for position, i in enumerate(order)}
    return Units(
        graph=graph,
        members=tuple(groups[i][0] for i in order),
        supported=tuple(groups[i][1] for i in order),
        inputs=tuple(tuple(sorted(place[s] for s in quotient.inputs[i])) for i in order),
        outputs=tuple(tuple(sorted(place[r] for r in quotient.outputs[i])) for i in order),
        escapes=tuple(any(graph.nodes[n].escapes for n in groups[i][0]) for i in order),
    )


def anchor_chains(graph: DataflowGraph, supports: Supports, max_depth: int) -> list[list[int]]:
    """Each anchor with the first 1, 2, ... elementwise or broadcast operators after it: what a library has patterns
    for.

    A chain goes on as long as each operator is the only reader of the one before it, up to `max_depth` operators.
    """
    chains: list[list[int]] = []
    for node in graph.nodes:
        if node.kind is not NodeKind.CALL or node.op_kind is not OpKind.ANCHOR or not supports(node):
            continue
        chain, last = [node.index], node
        while len(chain) < max_depth and len(last.outputs) == 1 and not last.escapes:
            last = graph.nodes[last.outputs[0]]
            if last.kind is not NodeKind.CALL or last.op_kind > OpKind.BROADCAST or not supports(last):
                break
            chain = [*chain, last.index]
            chains.append(chain)
    return chains
