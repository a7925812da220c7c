"""Disjoint sets, and the order and reachability of quotients, against slow, obvious definitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from collage.graph import DataflowGraph
from collage.graph.quotient import DisjointSets, Quotient
from tests.collage.graph.random_graphs import flows, graphs, is_acyclic


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))))
def test_disjoint_sets_are_the_connected_components(pairs: list[tuple[int, int]]) -> None:
    sets = DisjointSets()
    components = [{member} for member in range(10)]
    for one, other in pairs:
        sets.join(one, other)
        merged = set().union(*(c for c in components if c & {one, other}))
        components = [c for c in components if not c & merged] + [merged]
    assert sorted(sets.groups(range(10))) == sorted(sorted(c) for c in components)
    assert all(sets.find(member) == min(c) for c in components for member in c)


def partitioned(data: st.DataObject) -> tuple[DataflowGraph, list[list[int]]]:
    """A graph and a random partition of all its nodes."""
    graph = data.draw(graphs())
    labels = data.draw(st.lists(st.integers(0, 4), min_size=len(graph), max_size=len(graph)))
    return graph, [[i for i in range(len(graph)) if labels[i] == k] for k in sorted(set(labels))]


def quotient(graph: DataflowGraph, parts: list[list[int]]) -> Quotient:
    return Quotient(parts, [[source for i in part for source in graph.nodes[i].inputs] for part in parts])


@given(st.data())
def test_all_groups_are_in_the_order_exactly_when_the_quotient_is_acyclic(data: st.DataObject) -> None:
    graph, parts = partitioned(data)
    made = quotient(graph, parts)
    assert (len(made.order) == len(parts)) == is_acyclic(graph, parts)
    place = {group: position for position, group in enumerate(made.order)}
    assert all(place[a] < place[b] for a, b in made.edges() if b in place)
    assert sorted(made.edges()) == [(a, b) for a, readers in enumerate(made.outputs) for b in readers]


@given(graphs())
def test_single_nodes_keep_their_order_and_reach_what_they_flow_into(graph: DataflowGraph) -> None:
    made = quotient(graph, [[i] for i in range(len(graph))])
    assert made.order == tuple(range(len(graph)))
    paths = {(a, b) for a in range(len(graph)) for b in range(len(graph)) if made.downstream[a] >> b & 1}
    assert paths == flows(graph)
    assert paths == {(a, b) for a in range(len(graph)) for b in range(len(graph)) if made.upstream[b] >> a & 1}


def test_the_lowest_first_node_runs_first_where_there_is_a_choice() -> None:
    assert Quotient([[5], [1, 9], [3]], [[], [], [1]]).order == (1, 2, 0)
