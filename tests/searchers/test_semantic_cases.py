"""The cases that pin the semantics of search down, with candidates found by the rules.

Every searcher has to answer them all; `SEARCHERS` lists those with their default parameters.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
from collections.abc import Callable, Sequence

import pytest

from collage.cost.cost import Cost
from collage.errors import NoCoverError
from collage.graph.candidates import CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.kinds import OpKind
from collage.graph.sub_graph import SubGraphConfig
from collage.rules.base import OpCallByKindPartitionRule, OpPredicatePartitionRule, PartitionRule, PartitionSpec
from collage.rules.combinators import OnlyValidPartitionRule
from collage.rules.combine import CombinePartitionRule
from collage.rules.combiners import NATIVE_KIND_TABLE, CombineByKind
from collage.rules.trees import native_rule
from collage.search import Searcher, SearchProblem
from searchers.beam import BeamSearcher
from searchers.dijkstra import DijkstraSearcher
from tests.searchers.problems import candidate, graph_of, problem_of, shape

SEARCHERS: list[Searcher] = [DijkstraSearcher(), BeamSearcher()]
if importlib.util.find_spec("searchers.evolutionary"):
    SEARCHERS.append(importlib.import_module("searchers.evolutionary").EvolutionarySearcher())

every_searcher = pytest.mark.parametrize("searcher", SEARCHERS, ids=lambda searcher: type(searcher).__name__)

E, B, OPAQUE = OpKind.ELEMENTWISE, OpKind.BROADCAST, OpKind.OPAQUE
Ops = Sequence[tuple[str, OpKind, Sequence[int]]]

DIAMOND: Ops = [("relu", E, []), ("abs", E, [0]), ("relu", E, [1]), ("add", B, [1, 2])]
THREE_RELUS: Ops = [("relu", E, []), ("relu", E, [0]), ("relu", E, [1])]
FUSION_BENEFIT: Ops = [
    ("relu", E, []),
    ("relu", E, [0]),
    ("abs", E, []),
    ("relu", E, [2]),
    ("add", B, [1, 3]),
    ("relu", E, [4]),
    ("abs", E, [5]),
]
DOUBLE_RESIDUAL: Ops = [("relu", E, []), ("abs", E, [0]), ("add", B, [0, 1]), ("add", B, [1, 2])]
BUTTERFLY: Ops = [("relu", E, []), ("abs", E, []), ("add", B, [0, 1]), ("mul", B, [1, 0])]


def native(depth: int) -> PartitionRule:
    config = SubGraphConfig(max_exits=1, allow_taps=False, max_depth=depth)
    return OnlyValidPartitionRule(CombinePartitionRule(OpCallByKindPartitionRule(), NATIVE_KIND_TABLE), config)


def joins_anything(depth: int, takes: Sequence[str]) -> PartitionRule:
    singles = OpPredicatePartitionRule(lambda node: node.op in takes)
    config = SubGraphConfig(max_depth=depth)
    return OnlyValidPartitionRule(CombinePartitionRule(singles, (CombineByKind(OPAQUE, OPAQUE),)), config)


def fused(unit: float, count: int) -> float:
    """Each further operator in a partition costs 0.9 of the one before."""
    return unit * sum(0.9**i for i in range(count))


def two_backends(ops: Ops, cost_t: float, cost_b: float, depth_t: int, depth_b: int) -> SearchProblem:
    graph = DataflowGraph.from_edges(ops)
    specs = [
        PartitionSpec(native(depth_t), "T"),
        PartitionSpec(joins_anything(depth_b, ("relu", "add", "concat")), "B"),
    ]
    units = {"T": cost_t, "B": cost_b}
    found = [c for spec in specs for c in spec.candidates(graph)]
    return problem_of(graph, {c: fused(units[c.backend], len(c.sub_graph.inside)) for c in found})


@every_searcher
def test_diamond(searcher: Searcher) -> None:
    found = searcher.search(two_backends(DIAMOND, 2, 1, 1, 3))
    assert shape(found) == {("B", (0,)), ("T", (1,)), ("B", (2, 3))}
    assert found.cost.seconds == pytest.approx(4.9) and found.lower_bound <= found.cost.seconds


@every_searcher
def test_three_relus_with_a_shallow_b(searcher: Searcher) -> None:
    found = searcher.search(two_backends(THREE_RELUS, 100, 99, 2, 1))
    assert found.cost.seconds == pytest.approx(289)
    assert shape(found) in ({("T", (0, 1)), ("B", (2,))}, {("B", (0,)), ("T", (1, 2))})


@every_searcher
def test_three_relus_with_a_deep_b(searcher: Searcher) -> None:
    found = searcher.search(two_backends(THREE_RELUS, 99, 100, 1, 3))
    assert shape(found) == {("B", (0, 1, 2))} and found.cost.seconds == pytest.approx(271)


@every_searcher
def test_fusion_benefit_beats_the_cheaper_backend(searcher: Searcher) -> None:
    found = searcher.search(two_backends(FUSION_BENEFIT, 5, 6, 1, 5))
    assert shape(found) == {("B", (0, 1, 3, 4, 5)), ("T", (2,)), ("T", (6,))}
    assert found.cost.seconds == pytest.approx(34.5706)


@every_searcher
def test_double_residual_does_not_re_enter(searcher: Searcher) -> None:
    found = searcher.search(two_backends(DOUBLE_RESIDUAL, 2, 1, 4, 4))
    assert shape(found) == {("B", (0,)), ("T", (1,)), ("B", (2, 3))}
    assert found.cost.seconds == pytest.approx(4.9)


@every_searcher
@pytest.mark.parametrize("transition", [0.0, 0.25])
def test_butterfly_halves_never_come_together(searcher: Searcher, transition: float) -> None:
    """Nodes a1, b2, a2, b1: {a1,a2} and {b1,b2} are convex, and each would need the other's result."""
    graph = DataflowGraph.from_edges(BUTTERFLY)
    costs = {candidate(graph, backend, [node]): 10.0 for backend, node in (("X", 0), ("Y", 1), ("X", 2), ("Y", 3))}
    costs |= {candidate(graph, "X", [0, 2]): 1.0, candidate(graph, "Y", [1, 3]): 2.0}
    found = searcher.search(problem_of(graph, costs, {("X", "Y"): transition, ("Y", "X"): transition}))
    assert shape(found) == {("X", (0, 2)), ("Y", (1,)), ("Y", (3,))}
    assert found.cost.seconds == pytest.approx(21 + 2 * transition)


@every_searcher
def test_a_cycle_through_three_partitions(searcher: Searcher) -> None:
    """{0,3} -> {2,4} -> {1,5} -> {0,3}: no two of them depend on each other, all three do."""
    graph = graph_of([[], [], [], [0, 1], [0, 2], [2, 4]])
    cycle = {candidate(graph, "x", nodes): 0.0 for nodes in ([0, 3], [2, 4], [1, 5])}
    singles = {candidate(graph, "x", [node]): 1.0 for node in range(6)}
    found = searcher.search(problem_of(graph, cycle | singles))
    assert found.cost.seconds == 2 and len(found.partitions) == 4


@every_searcher
def test_a_cheaper_state_that_waits_for_more_does_not_hide_the_one_that_can_go_on(searcher: Searcher) -> None:
    """After {0} and {1,4}, node 4 waits for {3}; {2,3} reads node 0 only, so it may still run first."""
    graph = graph_of([[], [0], [0], [], [0, 3]])
    costs = {
        candidate(graph, "x", [0, 1, 4]): 0.0,
        candidate(graph, "x", [0]): 1.0,
        candidate(graph, "x", [1, 4]): 1.0,
        candidate(graph, "x", [2, 3]): 3.0,
    }
    found = searcher.search(problem_of(graph, costs))
    assert shape(found) == {("x", (0,)), ("x", (1, 4)), ("x", (2, 3))}


@every_searcher
def test_fan_out_covers_the_shared_node_once(searcher: Searcher) -> None:
    graph = graph_of([[], [0], [0]])
    costs = {candidate(graph, "x", nodes): 1.0 for nodes in ([0, 1], [0, 2])}
    costs |= {candidate(graph, "x", [node]): 5.0 for node in range(3)}
    found = searcher.search(problem_of(graph, costs))
    assert shape(found) in ({("x", (0, 1)), ("x", (2,))}, {("x", (0, 2)), ("x", (1,))})


@every_searcher
def test_coloured_square_is_not_one_red_partition(searcher: Searcher) -> None:
    graph = graph_of([[], [0], [0], [1, 2]])
    reds = [nodes for size in (1, 2, 3) for nodes in itertools.combinations((0, 1, 3), size)]
    costs = {candidate(graph, "red", nodes): 1.0 for nodes in reds}
    costs[candidate(graph, "blue", [2])] = 1.0
    found = searcher.search(problem_of(graph, costs))
    ends = ({("red", (0, 1)), ("red", (3,))}, {("red", (0,)), ("red", (1, 3))})
    assert shape(found) in tuple(two | {("blue", (2,))} for two in ends)


@every_searcher
def test_two_labels_on_one_set_of_nodes_are_two_candidates(searcher: Searcher) -> None:
    graph = graph_of([[], [0]])
    slow, fast = (candidate(graph, "dnn", [0, 1], label) for label in ("dnn.add_relu", "dnn.fused"))
    found = searcher.search(problem_of(graph, {slow: 2.0, fast: 1.0}))
    assert found.partitions == (fast,)
    assert found == searcher.search(problem_of(graph, {fast: 1.0, slow: 2.0}))


@every_searcher
def test_two_native_targets_with_equal_candidates_keep_their_own_costs(searcher: Searcher) -> None:
    graph = DataflowGraph.from_edges(THREE_RELUS)
    specs = [PartitionSpec(native(2), name) for name in ("tvm", "tvm-scalar")]
    units = {"tvm": (1.0, 4.0), "tvm-scalar": (2.0, 2.5)}  # alone, in a pair
    costs = {c: units[c.backend][len(c.sub_graph.inside) - 1] for s in specs for c in s.candidates(graph)}
    found = searcher.search(problem_of(graph, costs))
    assert found.cost.seconds == 3.0 and {c.backend for c in found.partitions} == {"tvm"}
    assert len(costs) == 10


@every_searcher
def test_an_opaque_operator_runs_alone_and_nothing_fuses_across_it(searcher: Searcher) -> None:
    graph = DataflowGraph.from_edges([("relu", E, []), ("sort", OPAQUE, [0]), ("relu", E, [1]), ("relu", E, [2])])
    found = PartitionSpec(native_rule(), "tvm").candidates(graph)
    problem = problem_of(graph, {c: fused(1.0, len(c.sub_graph.inside)) for c in found})
    assert shape(searcher.search(problem)) == {("tvm", (0,)), ("tvm", (1,)), ("tvm", (2, 3))}


@every_searcher
def test_an_operator_that_nobody_takes_is_named(searcher: Searcher) -> None:
    graph = DataflowGraph.from_edges([("relu", E, []), ("my.sort", OPAQUE, [0]), ("relu", E, [1])])
    costs = {c: 1.0 for c in PartitionSpec(native(2), "T").candidates(graph)}
    with pytest.raises(NoCoverError, match=r"my\.sort \(node 1\)"):
        searcher.search(problem_of(graph, costs))


@every_searcher
def test_an_operator_on_which_every_backend_fails_is_named_with_the_reasons(searcher: Searcher) -> None:
    graph = graph_of([[], [0]], ["relu", "erf"])
    costs: dict[CandidatePartition, Cost | float] = {
        candidate(graph, "T", [0]): 1.0,
        candidate(graph, "T", [1]): Cost.invalid("no schedule"),
        candidate(graph, "B", [0, 1]): Cost.invalid("killed by signal 11"),
    }
    with pytest.raises(NoCoverError, match=r"erf \(node 1\)") as error:
        searcher.search(problem_of(graph, costs))
    assert "T: no schedule" in str(error.value) and "B: killed by signal 11" in str(error.value)
    assert "relu (node 0)" not in str(error.value)


@every_searcher
def test_candidates_that_only_overlap_are_no_cover(searcher: Searcher) -> None:
    graph = graph_of([[], [0], [1]])
    with pytest.raises(NoCoverError, match=r"without overlap"):
        searcher.search(problem_of(graph, {candidate(graph, "T", nodes): 1.0 for nodes in ([0, 1], [1, 2])}))


@every_searcher
@pytest.mark.parametrize("case", [DIAMOND, FUSION_BENEFIT, DOUBLE_RESIDUAL])
@pytest.mark.parametrize("pick", [min, max])
def test_one_backend_is_never_better_than_two(searcher: Searcher, case: Ops, pick: Callable[[str, str], str]) -> None:
    both = two_backends(case, 5, 6, 1, 5)
    kept = [c for c in both.candidates if c.backend == pick("T", "B")]
    alone = problem_of(both.graph, {c: both.cost(c) for c in kept})
    best = searcher.search(both).cost.seconds
    try:
        assert best <= searcher.search(alone).cost.seconds
    except NoCoverError:
        assert pick("T", "B") == "B"
