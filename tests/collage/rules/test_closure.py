"""The closure of candidates under combiners: complete, and exactly the expected ones."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from collage.graph import DataflowGraph, IndexSet, OpKind, SubGraph, SubGraphConfig
from collage.rules import (
    NATIVE_KIND_TABLE,
    CombineByKind,
    CombinePartitionRule,
    CombinerRule,
    OnlyValidPartitionRule,
    OpCallByKindPartitionRule,
)
from tests.collage.graph.random_graphs import graphs, is_convex, longest_path, subsets
from tests.collage.rules.example_combiners import CombineHorizontalAnchors
from tests.collage.rules.networks import ANYTHING, A, B, E, Nodes, fan_out, found, gpt2_fragment

SINGLES = OpCallByKindPartitionRule(OpKind.OPAQUE)


def test_counts_on_the_gpt2_fragment() -> None:
    graph = gpt2_fragment()
    rule = CombinePartitionRule(OpCallByKindPartitionRule(), [CombineByKind(A, B)], max_depth=3)
    candidates = found(rule, graph)
    singles = {(i,) for i in (6, 8, 9, 11, 15, 17, 18, 20, 21, 23, 24)}
    pairs = {(6, 8), (9, 11), (9, 15), (11, 24), (15, 17), (17, 18), (18, 20), (20, 21), (21, 23), (23, 24)}
    larger = {
        (9, 11, 15),
        (9, 15, 17),
        (9, 11, 15, 17),
        (15, 17, 18),
        (17, 18, 20),
        (18, 20, 21),
        (20, 21, 23),
        (21, 23, 24),
        (11, 23, 24),
        (11, 21, 23, 24),
    }
    assert len(candidates) == 31
    assert set(candidates) == singles | pairs | larger
    valid = found(OnlyValidPartitionRule(rule, SubGraphConfig(1, allow_taps=False, max_depth=2)), graph)
    assert len(valid) == 20
    assert set(valid) == {nodes for nodes in candidates if len(nodes) < 3 or nodes == (11, 23, 24)} - {(9, 11), (9, 15)}


def test_a_fan_out_never_yields_its_halves() -> None:
    """a with b leaves a as a tap: c still reads it. Only all three together have no tap."""
    rule = CombinePartitionRule(SINGLES, [ANYTHING])
    assert set(found(rule, fan_out())) == {(1,), (2,), (3,), (1, 2), (1, 3), (1, 2, 3)}
    valid = OnlyValidPartitionRule(rule, SubGraphConfig(allow_taps=False))
    assert set(found(valid, fan_out())) == {(1,), (2,), (3,), (1, 2, 3)}


def test_old_upstream_meets_new_downstream() -> None:
    """{a} is old when {b,c,d} appears; v2 never paired them once {b,c,d} was made from two candidates of one round."""
    graph = DataflowGraph.from_edges([("a", OpKind.ANCHOR, []), ("b", E, [0]), ("c", E, [1]), ("d", E, [2])])
    rule = CombinePartitionRule(SINGLES, [CombineByKind(OpKind.ANCHOR, B)])
    assert (0, 1, 2, 3) in found(rule, graph)


def closed_by_brute_force(graph: DataflowGraph, combiners: Sequence[CombinerRule], depth: int) -> set[Nodes]:
    """All pairs, in all orders, until nothing new appears."""
    sets = {frozenset([i]) for i in graph.coverable}
    while True:
        new = set()
        for a in sets:
            for b in sets:
                if a & b or (a | b) in sets:
                    continue
                up, down = SubGraph(graph, IndexSet(a)), SubGraph(graph, IndexSet(b))
                along = not up.outputs.isdisjoint(down.inside)
                apart = up.outputs.isdisjoint(down.inside) and down.outputs.isdisjoint(up.inside)
                beside = apart and not up.inputs.isdisjoint(down.inputs)
                fits = [c for c in combiners if (beside if c.horizontal else along)]
                small = not depth or longest_path(graph, a | b) <= depth
                if any(c.joins(up, down) for c in fits) and small and is_convex(graph, a | b):
                    new.add(a | b)
        if not new:
            return {tuple(sorted(s)) for s in sets}
        sets |= new


@settings(max_examples=40, deadline=None)
@given(graphs(max_operators=5), st.integers(0, 3))
def test_the_closure_is_complete(graph: DataflowGraph, depth: int) -> None:
    tables: list[Sequence[CombinerRule]] = [NATIVE_KIND_TABLE, [ANYTHING], [CombineByKind(A, B)]]
    for combiners in tables:
        rule = CombinePartitionRule(SINGLES, combiners, depth)
        candidates = found(rule, graph)
        assert len(candidates) == len(set(candidates))
        assert set(candidates) == closed_by_brute_force(graph, combiners, depth)


@settings(max_examples=30, deadline=None)
@given(graphs(max_operators=5, kinds=[OpKind.ANCHOR, OpKind.ELEMENTWISE]))
def test_the_closure_is_complete_beside_edges_too(graph: DataflowGraph) -> None:
    combiners = [CombineHorizontalAnchors(), CombineByKind(A, B)]
    same = DataflowGraph.from_edges(
        [(n.kind.value if n.kind.value != "call" else n.op_kind.name, _kind(n), n.inputs) for n in graph.nodes],
        escaping=graph.escaping,
    )
    assert set(found(CombinePartitionRule(SINGLES, combiners), same)) == closed_by_brute_force(same, combiners, 0)


def _kind(node):  # type: ignore[no-untyped-def]
    return node.op_kind if node.kind.value == "call" else node.kind


@settings(max_examples=40, deadline=None)
@given(graphs(max_operators=6), st.integers(1, 4))
def test_join_anything_finds_every_connected_convex_set(graph: DataflowGraph, depth: int) -> None:
    expected = set()
    for inside in subsets(graph):
        reached = {min(inside)}
        while True:
            near = {n for i in reached for n in (*graph.nodes[i].inputs, *graph.nodes[i].outputs)} & inside
            if near <= reached:
                break
            reached |= near
        if reached == inside and longest_path(graph, inside) <= depth and is_convex(graph, inside):
            expected.add(tuple(sorted(inside)))
    assert set(found(CombinePartitionRule(SINGLES, [ANYTHING], depth), graph)) == expected


@settings(max_examples=150, deadline=None)
@given(graphs(max_operators=8), st.integers(1, 4))
def test_one_exit_while_closing_loses_nothing(graph: DataflowGraph, depth: int) -> None:
    """Native candidates have one exit; dropping others while closing gives what filtering at the end gives."""
    config = SubGraphConfig(max_exits=1, allow_taps=False, max_depth=depth)
    late = OnlyValidPartitionRule(CombinePartitionRule(SINGLES, NATIVE_KIND_TABLE, depth), config)
    early = OnlyValidPartitionRule(CombinePartitionRule(SINGLES, NATIVE_KIND_TABLE, depth, max_exits=1), config)
    assert set(found(early, graph)) == set(found(late, graph))


def test_a_limit_per_exit_keeps_the_smallest() -> None:
    nodes: list[tuple[str, OpKind, list[int]]] = [(f"a{i}", E, []) for i in range(8)]
    graph = DataflowGraph.from_edges([*nodes, ("concat", OpKind.INJECTIVE, list(range(8)))])
    all_joins = found(CombinePartitionRule(SINGLES, NATIVE_KIND_TABLE, 2), graph)
    assert len(all_joins) == 8 + 2**8
    limited = found(CombinePartitionRule(SINGLES, NATIVE_KIND_TABLE, 2, max_per_exits=20), graph)
    assert len(limited) == 8 + 1 + 20
    assert max(map(len, limited)) == 3
