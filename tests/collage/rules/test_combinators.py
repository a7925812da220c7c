"""Rules on single operators, and combinators: labels, unions, validity, partition boundaries, the host."""

import pytest

from collage.errors import NoCoverError
from collage.graph import DataflowGraph, IndexSet, SubGraph, SubGraphConfig
from collage.graph.candidates import HOST, CandidatePartition, CandidateSet
from collage.rules import (
    CombinePartitionRule,
    CompositePartitionRule,
    HostPartitionRule,
    OnlyValidPartitionRule,
    OpCallByKindPartitionRule,
    OpPredicatePartitionRule,
    PrimitivePartitionRule,
    UnionPartitionRule,
    gather_candidates,
    native_rule,
)
from collage.rules.base import PartitionSpec
from collage.rules.combinators import composites_fit
from tests.collage.rules.networks import ANYTHING, CONST, GET, IN, TUPLE, A, B, E, I, O, chain, fan_out, found

EVERYTHING = OpPredicatePartitionRule(lambda node: True)


def mixed() -> DataflowGraph:
    return DataflowGraph.from_edges(
        [
            ("x", IN, []),
            ("w", CONST, []),
            ("conv", A, [0, 1]),
            ("sort", O, [2]),
            ("split", I, [3]),
            ("get", GET, [4]),
            ("tuple", TUPLE, [5, 2]),
        ]
    )


def test_operators_by_predicate_and_by_kind() -> None:
    assert found(EVERYTHING, mixed()) == [(2,), (3,), (4,), (5,), (6,)], "inputs and constants are no candidates"
    assert found(OpPredicatePartitionRule(lambda n: n.op == "sort"), mixed()) == [(3,)]
    assert found(OpCallByKindPartitionRule(), mixed()) == [(2,), (4,)], "an opaque operator cannot be fused"


def test_two_labels_on_one_set_of_nodes_are_two_candidates() -> None:
    rule = UnionPartitionRule(
        CompositePartitionRule("lib.fast", EVERYTHING),
        CompositePartitionRule("lib.small", EVERYTHING),
        CompositePartitionRule("lib.fast", EVERYTHING),
    )
    candidates = CandidateSet(PartitionSpec(rule, "lib").candidates(chain(1)))
    assert [str(c) for c in candidates] == ["lib{1} lib.fast", "lib{1} lib.small"]


def test_equal_candidates_of_two_backends_are_two_candidates() -> None:
    candidates = gather_candidates(chain(2), [PartitionSpec(native_rule(), "a"), PartitionSpec(native_rule(), "b")])
    assert sorted(str(c) for c in candidates) == ["a{1,2}", "a{1}", "a{2}", "b{1,2}", "b{1}", "b{2}"]


def test_only_valid_filters() -> None:
    pairs = CombinePartitionRule(EVERYTHING, [ANYTHING])
    assert set(found(OnlyValidPartitionRule(pairs, SubGraphConfig(max_exits=1)), fan_out())) == {(1,), (2,), (3,)}


def test_composites_are_disjoint_and_inside() -> None:
    graph = chain(3)

    def candidate(*composites: tuple[str, list[int]]) -> CandidatePartition:
        labelled = tuple((label, IndexSet(nodes)) for label, nodes in composites)
        return CandidatePartition(SubGraph(graph, IndexSet([1, 2])), "lib", labelled)

    assert composites_fit(candidate(("a", [1]), ("b", [2])))
    assert not composites_fit(candidate(("a", [1]), ("b", [1, 2])))
    assert not composites_fit(candidate(("a", [2, 3])))


def test_only_tensors_cross_a_partition_boundary() -> None:
    all_joins = CombinePartitionRule(EVERYTHING, [ANYTHING])
    assert (3, 4) in found(all_joins, mixed())
    kept = set(found(PrimitivePartitionRule(all_joins), mixed()))
    assert kept == {(2,), (3,), (2, 3), (3, 4, 5), (4, 5), (2, 3, 4, 5)}


def test_the_host_runs_tuples_projections_and_views() -> None:
    graph = DataflowGraph.from_edges(
        [("x", IN, []), ("relax.reshape", I, [0]), ("relax.permute_dims", I, [1]), ("relax.shape_of", O, [2])]
    )
    assert found(HostPartitionRule(), graph) == [(1,), (3,)]
    assert found(HostPartitionRule(), mixed()) == [(5,), (6,)]
    assert {c.backend for c in PartitionSpec(HostPartitionRule(), "x").candidates(graph)} == {HOST}


def test_an_opaque_operator_is_a_native_candidate_alone() -> None:
    graph = DataflowGraph.from_edges([("x", IN, []), ("relu", E, [0]), ("sort", O, [1]), ("add", B, [2])])
    assert set(found(native_rule(), graph)) == {(1,), (2,), (3,)}


def test_a_kernel_gives_out_no_tuple_with_something_it_was_given() -> None:
    given = DataflowGraph.from_edges([("x", IN, []), ("relu", E, [0]), ("tuple", TUPLE, [1, 0])])
    assert found(native_rule(), given) == [(1,)]
    computed = DataflowGraph.from_edges([("x", IN, []), ("relu", E, [0]), ("tuple", TUPLE, [1])])
    assert found(native_rule(), computed) == [(1,), (1, 2)]


def test_an_operator_that_no_backend_can_run_is_named() -> None:
    spec = PartitionSpec(OpPredicatePartitionRule(lambda node: node.op != "relax.sort"), "openvino")
    graph = DataflowGraph.from_edges([("x", IN, []), ("relax.nn.relu", E, [0]), ("relax.sort", O, [1])])
    with pytest.raises(NoCoverError, match=r"relax\.sort \(node 2\)"):
        gather_candidates(graph, [spec])
