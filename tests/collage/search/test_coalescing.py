"""Coalescing proposes unions of neighbouring partitions: legal ones, new ones, and every pair."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from collage.backends.base import Availability, Backend, Style
from collage.cost.cost import Cost
from collage.graph import DataflowGraph, IndexSet, NodeKind, OpKind, SubGraph, SubGraphConfig
from collage.graph.candidates import HOST, CandidatePartition, CandidateSet
from collage.rules import (
    CombinePartitionRule,
    CompositePartitionRule,
    OnlyValidPartitionRule,
    OpPredicatePartitionRule,
    PartitionRule,
    PrimitivePartitionRule,
    UnionPartitionRule,
    graph_rule,
    native_rule,
)
from collage.rules.base import PartitionSpec
from collage.search import Partitioning, execution_order
from collage.search.coalescing import MAX_SIBLINGS, coalesced
from tests.collage.graph.random_graphs import graphs, is_acyclic, is_convex
from tests.collage.rules.example_combiners import CombineHorizontalAnchors

E, A, B, I = OpKind.ELEMENTWISE, OpKind.ANCHOR, OpKind.BROADCAST, OpKind.INJECTIVE  # noqa: E741
Parts = list[list[int]]


class Fake(Backend):
    makes_blobs = False

    def __init__(self, style: Style, rule: PartitionRule) -> None:
        self.style = style  # type: ignore[misc]
        self._rule = rule

    def availability(self) -> Availability:
        return Availability(True)

    def version(self) -> str:
        return "1"

    def rule(self) -> PartitionRule:
        return self._rule


ANYTHING = graph_rule(lambda node: True)
GRAPH = {"g": Fake("graph", ANYTHING), "h": Fake("graph", ANYTHING)}
NATIVE = {"t": Fake("native", native_rule(max_depth=0))}


def candidate(graph: DataflowGraph, backend: str, nodes: Iterable[int], label: str = "") -> CandidatePartition:
    inside = IndexSet(list(nodes))
    return CandidatePartition(SubGraph(graph, inside), backend, ((label, inside),) if label else ())


def chosen(graph: DataflowGraph, *parts: tuple[str, Sequence[int]]) -> Partitioning:
    candidates = [candidate(graph, backend, nodes) for backend, nodes in parts]
    return Partitioning(execution_order(graph, candidates), Cost(1.0))


def proposed(
    graph: DataflowGraph, cover: Partitioning, backends: dict[str, Fake], known: Iterable[CandidatePartition] = ()
) -> set[tuple[str, tuple[int, ...]]]:
    new = coalesced(graph, cover, CandidateSet([*cover.candidates, *known]), backends)
    assert len(new) == len(set(new))
    return {(c.backend, tuple(c.sub_graph.inside)) for c in new}


def unary(length: int, op: str = "relu") -> DataflowGraph:
    return DataflowGraph.from_edges([("x", NodeKind.INPUT, []), *((op, E, [i]) for i in range(length))])


def merged_at_random(draw: st.DrawFn, graph: DataflowGraph, allowed: set[frozenset[int]] | None = None) -> Parts:
    """A cover with an acyclic quotient: single operators, of which random pairs are merged where that is legal."""
    parts = [[i] for i in graph.coverable]
    for _ in range(draw(st.integers(0, 4))):
        if len(parts) < 2:
            break
        first, second = draw(st.lists(st.sampled_from(range(len(parts))), min_size=2, max_size=2, unique=True))
        union = sorted(parts[first] + parts[second])
        merged = [p for i, p in enumerate(parts) if i not in (first, second)] + [union]
        if is_acyclic(graph, merged) and (allowed is None or frozenset(union) in allowed):
            parts = merged
    return parts


@st.composite
def covers(draw: st.DrawFn) -> tuple[DataflowGraph, Partitioning]:
    graph = draw(graphs(max_operators=7))
    parts = merged_at_random(draw, graph)
    return graph, chosen(graph, *((draw(st.sampled_from("gh")), part) for part in parts))


@st.composite
def native_covers(draw: st.DrawFn) -> tuple[DataflowGraph, Partitioning, set[frozenset[int]]]:
    graph = draw(graphs(max_operators=7))
    kernels = PartitionSpec(native_rule(max_depth=0, max_per_exit=0), "t").candidates(graph)
    allowed = {frozenset(kernel.sub_graph.inside) for kernel in kernels}
    return graph, chosen(graph, *(("t", part) for part in merged_at_random(draw, graph, allowed))), allowed


def parts_of(cover: Iterable[CandidatePartition]) -> Parts:
    return [list(c.sub_graph.inside) for c in cover]


def replaced(cover: Partitioning, union: CandidatePartition) -> list[CandidatePartition]:
    return [c for c in cover.candidates if c.sub_graph.inside.isdisjoint(union.sub_graph.inside)] + [union]


@settings(max_examples=150, deadline=None)
@given(covers())
def test_unions_are_new_convex_and_leave_the_cover_acyclic(made: tuple[DataflowGraph, Partitioning]) -> None:
    graph, cover = made
    known = CandidateSet(cover.candidates)
    new = coalesced(graph, cover, known, GRAPH)
    for union in new:
        inside = union.sub_graph.inside
        parts = [c for c in cover.candidates if not c.sub_graph.inside.isdisjoint(inside)]
        assert len(parts) > 1 and {c.backend for c in parts} == {union.backend}
        assert sum(len(c.sub_graph.inside) for c in parts) == len(inside), "a union of whole partitions"
        assert is_convex(graph, frozenset(inside))
        assert is_acyclic(graph, parts_of(replaced(cover, union)))
    assert set(new).isdisjoint(known) and len(set(new)) == len(new)
    assert coalesced(graph, cover, CandidateSet(reversed(known)), GRAPH) == new
    assert coalesced(graph, cover, CandidateSet([*known, *new]), GRAPH) == []


def touch(one: CandidatePartition, other: CandidatePartition) -> bool:
    """Whether an edge connects them, or they read one value."""
    a, b = one.sub_graph, other.sub_graph
    return not (a.outputs.isdisjoint(b.inside) and b.outputs.isdisjoint(a.inside) and a.inputs.isdisjoint(b.inputs))


@settings(max_examples=150, deadline=None)
@given(covers())
def test_every_legal_pair_is_proposed(made: tuple[DataflowGraph, Partitioning]) -> None:
    graph, cover = made
    found = proposed(graph, cover, GRAPH)
    for one, other in combinations(cover.partitions, 2):
        union = one.sub_graph.union(other.sub_graph)
        merged = candidate(graph, one.backend, union.inside)
        if one.backend == other.backend and touch(one, other) and is_acyclic(graph, parts_of(replaced(cover, merged))):
            assert (one.backend, tuple(union.inside)) in found


@settings(max_examples=150, deadline=None)
@given(native_covers())
def test_native_unions_are_what_the_kind_table_makes(
    made: tuple[DataflowGraph, Partitioning, set[frozenset[int]]],
) -> None:
    """Every pair whose union is a kernel, and no union that is not; the rule's limit per exit does not count."""
    graph, cover, kernels = made
    found = proposed(graph, cover, NATIVE)
    assert {frozenset(nodes) for _, nodes in found} <= kernels
    for one, other in combinations(cover.partitions, 2):
        union = one.sub_graph.union(other.sub_graph)
        legal = is_acyclic(graph, parts_of(replaced(cover, candidate(graph, "t", union.inside))))
        if legal and touch(one, other) and frozenset(union.inside) in kernels:
            assert ("t", tuple(union.inside)) in found


def test_a_chain_gives_its_pairs_and_the_whole() -> None:
    graph = unary(5)
    cover = chosen(graph, *(("g", [i]) for i in range(1, 6)))
    pairs = {("g", (i, i + 1)) for i in range(1, 5)}
    assert proposed(graph, cover, GRAPH) == pairs | {("g", (1, 2, 3, 4, 5))}


def test_runs_stop_at_another_backend() -> None:
    graph = unary(7)
    cover = chosen(graph, *(("h" if i == 4 else "g", [i]) for i in range(1, 8)))
    runs = {nodes for _, nodes in proposed(graph, cover, GRAPH) if len(nodes) > 2}
    assert runs == {(1, 2, 3), (5, 6, 7)}


def test_searching_and_coalescing_by_turns_ends() -> None:
    """With merged always cheaper, a chain becomes one partition; then there is nothing new."""
    graph = unary(6)
    cover = chosen(graph, *(("g", [i]) for i in range(1, 7)))
    known = CandidateSet(cover.candidates)
    while new := coalesced(graph, cover, known, GRAPH):
        known = CandidateSet([*known, *new])
        best = max(new, key=lambda c: len(c.sub_graph.inside))
        cover = Partitioning(execution_order(graph, replaced(cover, best)), Cost(1.0))
    assert parts_of(cover.candidates) == [[1, 2, 3, 4, 5, 6]]


def test_the_wings_of_a_butterfly_are_not_both_merged() -> None:
    """{a1,a2} and {b1,b2} are each convex and would need each other; with a merged, b stays apart."""
    graph = DataflowGraph.from_edges(
        [("x", NodeKind.INPUT, []), ("relu", E, [0]), ("abs", E, [0]), ("add", B, [1, 2]), ("mul", B, [2, 1])]
    )
    merged = proposed(graph, chosen(graph, ("g", [1, 3]), ("h", [2]), ("h", [4])), GRAPH)
    apart = proposed(graph, chosen(graph, ("g", [1]), ("g", [3]), ("h", [2]), ("h", [4])), GRAPH)
    assert merged == set()
    assert {("g", (1, 3)), ("h", (2, 4))} <= apart


def test_a_coloured_square() -> None:
    """A->B, A->C, B->D, C->D; A, B, D of one backend, C of another: {A,B} and {B,D}, never {A,B,D}."""
    graph = DataflowGraph.from_edges(
        [("x", NodeKind.INPUT, []), ("relu", E, [0]), ("relu", E, [1]), ("abs", E, [1]), ("add", B, [2, 3])]
    )
    cover = chosen(graph, ("g", [1]), ("g", [2]), ("h", [3]), ("g", [4]))
    assert proposed(graph, cover, GRAPH) == {("g", (1, 2)), ("g", (2, 4))}


def test_what_lies_between_two_partitions_goes_with_them() -> None:
    """relu feeds the sum directly, and through an abs of the same backend: relu and sum cannot merge without it."""
    graph = DataflowGraph.from_edges([("x", NodeKind.INPUT, []), ("relu", E, [0]), ("abs", E, [1]), ("add", B, [1, 2])])
    cover = chosen(graph, ("g", [1]), ("g", [2]), ("g", [3]))
    assert proposed(graph, cover, GRAPH) == {("g", (1, 2)), ("g", (2, 3)), ("g", (1, 2, 3))}


def test_a_view_on_the_host_goes_in_where_the_backend_takes_it() -> None:
    graph = DataflowGraph.from_edges(
        [("x", NodeKind.INPUT, []), ("relu", E, [0]), ("relax.reshape", I, [1]), ("relu", E, [2])]
    )
    cover = chosen(graph, ("g", [1]), (HOST, [2]), ("g", [3]))
    assert proposed(graph, cover, GRAPH) == set(), "as far as is known, the backend takes no reshape"
    assert proposed(graph, cover, GRAPH, [candidate(graph, "g", [2, 3])]) == {("g", (1, 2, 3))}


def test_partitions_beside_each_other_merge_where_the_rule_allows_several_exits() -> None:
    graph = DataflowGraph.from_edges([("x", NodeKind.INPUT, []), ("dense", A, [0]), ("dense", A, [0])])
    parts = [[1], [2]]
    assert proposed(graph, chosen(graph, *(("g", p) for p in parts)), GRAPH) == {("g", (1, 2))}
    assert proposed(graph, chosen(graph, *(("t", p) for p in parts)), NATIVE) == set()
    beside = Fake("native", CombinePartitionRule(native_rule(), [CombineHorizontalAnchors()]))
    assert proposed(graph, chosen(graph, *(("t", p) for p in parts)), {"t": beside}) == {("t", (1, 2))}


def test_readers_of_one_value_are_paired_with_those_near_them() -> None:
    """All pairs of up to MAX_SIBLINGS; of more, so many per reader, and the whole."""
    for count in (MAX_SIBLINGS, 20):
        graph = DataflowGraph.from_edges([("x", NodeKind.INPUT, []), *(("relu", E, [0]) for _ in range(count))])
        cover = chosen(graph, *(("g", [i]) for i in range(1, count + 1)))
        pairs = {("g", (i, j)) for i, j in combinations(range(1, count + 1), 2) if j - i < MAX_SIBLINGS}
        assert proposed(graph, cover, GRAPH) == pairs | {("g", tuple(range(1, count + 1)))}


def test_the_limits_of_the_backend_hold() -> None:
    graph = unary(4)
    cover = chosen(graph, *(("g", [i]) for i in range(1, 5)))
    shallow = Fake("graph", OnlyValidPartitionRule(ANYTHING, SubGraphConfig(max_depth=3)))
    assert proposed(graph, cover, {"g": shallow}) == {("g", (1, 2)), ("g", (2, 3)), ("g", (3, 4))}


def relu_library() -> PartitionRule:
    relu = CompositePartitionRule("lib.relu", OpPredicatePartitionRule(lambda node: node.op == "relu"))
    one_exit = SubGraphConfig(max_exits=1, allow_taps=False)
    return PrimitivePartitionRule(OnlyValidPartitionRule(UnionPartitionRule(relu), one_exit))


class OfBlobs(Fake):
    makes_blobs = True


def test_an_engine_that_runs_one_pattern_is_offered_no_two() -> None:
    graph = unary(2)
    cover = chosen(graph, ("lib", [1]), ("lib", [2]))
    assert proposed(graph, cover, {"lib": OfBlobs("library", relu_library())}) == set()
    assert proposed(graph, cover, {"lib": Fake("library", relu_library())}) == {("lib", (1, 2))}


def test_library_partitions_keep_their_patterns() -> None:
    graph = unary(2)
    library = Fake("library", relu_library())
    parts = [candidate(graph, "lib", [1], "lib.relu"), candidate(graph, "lib", [2], "lib.relu")]
    (union,) = coalesced(graph, Partitioning(tuple(parts), Cost(1.0)), CandidateSet(parts), {"lib": library})
    assert [(label, tuple(nodes)) for label, nodes in union.composites] == [("lib.relu", (1,)), ("lib.relu", (2,))]
    fused = candidate(graph, "lib", [1, 2], "lib.relu")
    assert fused != union, "one pattern over both is another candidate"


def test_a_native_kernel_grows_through_valid_kernels_only() -> None:
    """add(relu, dense(relu)): {relu, add} alone would be re-entered, so it is no step towards all three."""
    graph = DataflowGraph.from_edges(
        [("x", NodeKind.INPUT, []), ("relu", E, [0]), ("dense", A, [1]), ("add", B, [1, 2])]
    )
    assert proposed(graph, chosen(graph, ("t", [1]), ("t", [2]), ("t", [3])), NATIVE) == {("t", (2, 3))}


def test_unions_have_one_label_of_what_is_in_eight_bits() -> None:
    """Parts in eight bits and others are joined; a library's patterns keep their labels apart."""
    graph = unary(5)
    one, two, three, four, five = graph.coverable
    parts = [
        candidate(graph, "g", [one], "int8"),
        candidate(graph, "g", [two]),
        candidate(graph, "g", [three], "pattern"),
        candidate(graph, "g", [four], "pattern"),
        candidate(graph, "g", [five], "int8"),
    ]
    cover = Partitioning(execution_order(graph, parts), Cost(1.0))
    new = {tuple(c.sub_graph.inside): c.composites for c in coalesced(graph, cover, CandidateSet(parts), GRAPH)}
    assert new[one, two] == (("int8", IndexSet([one])),)
    assert new[tuple(graph.coverable)] == (
        ("pattern", IndexSet([three])),
        ("pattern", IndexSet([four])),
        ("int8", IndexSet([one, five])),
    )
    wholes = [CandidatePartition(SubGraph(graph, graph.coverable), "g", new[tuple(graph.coverable)])]
    known = CandidateSet([*parts, *wholes])
    again = {tuple(c.sub_graph.inside) for c in coalesced(graph, cover, known, GRAPH)}
    assert tuple(graph.coverable) not in again, "what is known is not proposed once more"
