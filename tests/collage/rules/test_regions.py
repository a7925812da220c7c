"""Regions for graph-style backends: convex, supported, few, and those that matter among them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage.graph import DataflowGraph, DataflowNode, NodeKind, OpKind
from collage.rules import graph_rule
from collage.rules.base import PartitionSpec
from collage.rules.regions import maximal_regions, runs
from collage.rules.units import units_of
from tests.collage.graph.random_graphs import graphs, is_acyclic, is_convex
from tests.collage.rules.networks import GET, IN, A, B, E, I, Nodes, O, cell_network, chain, found, residual_network

ALL = graph_rule(lambda node: True)


@settings(max_examples=150, deadline=None)
@given(graphs(max_operators=10, tuples=True), st.sets(st.integers(2, 20)))
def test_every_region_is_convex_and_supported(graph: DataflowGraph, unsupported: set[int]) -> None:
    def supports(node: DataflowNode) -> bool:
        return node.index not in unsupported

    for candidate in PartitionSpec(graph_rule(supports), "ov").candidates(graph):
        inside = frozenset(candidate.sub_graph.inside)
        assert is_convex(graph, inside)
        assert inside <= frozenset(graph.coverable)
        assert all(supports(graph.nodes[i]) for i in inside if graph.nodes[i].kind is NodeKind.CALL)
        assert candidate.sub_graph.has_tensor_boundary


@settings(max_examples=150, deadline=None)
@given(graphs(max_operators=10, tuples=True), st.sets(st.integers(2, 20)), st.booleans())
def test_maximal_regions_are_one_placement(graph: DataflowGraph, unsupported: set[int], from_results: bool) -> None:
    """Together they hold all that is supported, once, and the partitioned network has an order to run in."""
    units = units_of(graph, lambda node: node.index not in unsupported, max_chain=4)
    regions = [units.nodes(region) for region in maximal_regions(units, from_results)]
    held = sorted(i for region in regions for i in region)
    assert held == sorted(i for unit, takes in zip(units.members, units.supported, strict=True) if takes for i in unit)
    assert is_acyclic(graph, regions)


@settings(max_examples=100, deadline=None)
@given(graphs(max_operators=10, tuples=True), st.integers(0, 4))
def test_units_are_a_partition_in_topological_order(graph: DataflowGraph, max_chain: int) -> None:
    units = units_of(graph, lambda node: True, max_chain)
    assert sorted(i for unit in units.members for i in unit) == list(graph.coverable)
    assert all(source < unit for unit, sources in enumerate(units.inputs) for source in sources)
    only_calls = [unit for unit in units.members if all(graph.nodes[i].kind is NodeKind.CALL for i in unit)]
    assert all(len(unit) <= max(max_chain, 1) for unit in only_calls)


@settings(max_examples=100, deadline=None)
@given(graphs(max_operators=10))
def test_every_supported_operator_is_a_region_of_its_own(graph: DataflowGraph) -> None:
    assert {(i,) for i in graph.coverable} <= set(found(ALL, graph))


def test_all_supported_and_connected_is_one_region() -> None:
    for graph in (residual_network(3), cell_network(4), chain(40)):
        assert tuple(graph.coverable) in found(ALL, graph)


def test_a_backend_is_asked_once_of_every_operator() -> None:
    asked: list[int] = []
    graph = residual_network(3)

    def supports(node: DataflowNode) -> bool:
        asked.append(node.index)
        return True

    assert found(graph_rule(supports), graph)
    assert len(asked) == len(set(asked))


def test_an_unsupported_operator_separates() -> None:
    graph = DataflowGraph.from_edges([("x", IN, []), *(("sort" if i == 4 else "relu", E, [i]) for i in range(9))])
    regions = found(graph_rule(lambda node: node.op != "sort"), graph)
    assert (1, 2, 3, 4) in regions and (6, 7, 8, 9) in regions
    assert not any(5 in nodes for nodes in regions)


def test_a_side_input_from_the_host_does_not_separate() -> None:
    """The mask is computed by an unsupported operator from an input: nothing supported flows into it."""
    graph = DataflowGraph.from_edges(
        [("x", IN, []), ("ids", IN, []), ("cumsum", O, [1]), ("dense", A, [0]), ("add", B, [3, 2]), ("dense", A, [4])]
    )
    assert (3, 4, 5) in found(graph_rule(lambda node: node.op != "cumsum"), graph)


def test_regions_on_both_sides_of_an_unsupported_branch() -> None:
    """a -> u -> d with u unsupported, a -> b -> d, where {a,b,d} would re-enter: b goes with a, or with d."""
    graph = DataflowGraph.from_edges(
        [("x", IN, []), ("a", A, [0]), ("u", O, [1]), ("b", A, [1]), ("d", I, [2, 3]), ("e", A, [4])]
    )
    regions = set(found(graph_rule(lambda node: node.op != "u"), graph))
    assert {(1, 3), (4, 5), (3, 4, 5)} <= regions
    assert (1, 3, 4) not in regions


def test_residual_blocks_and_runs_of_them() -> None:
    """A block of `residual_network` is conv+relu, conv+add+relu: two units, one interval."""
    regions = set(found(ALL, residual_network(6)))
    block = {b: tuple(range(5 * b + 1, 5 * b + 6)) for b in range(6)}
    assert {block[b] for b in range(6)} <= regions
    assert {block[b] + block[b + 1] for b in range(5)} <= regions
    assert {block[b] + block[b + 1] + block[b + 2] for b in range(4)} <= regions


def test_library_patterns() -> None:
    regions = set(found(ALL, residual_network(2)))
    assert {(6,), (6, 7), (8,), (8, 9), (8, 9, 10)} <= regions


def test_a_residual_sum_belongs_to_the_pattern_of_either_branch() -> None:
    graph = DataflowGraph.from_edges(
        [("x", IN, []), ("conv", A, [0]), ("conv", A, [0]), ("add", B, [1, 2]), ("relu", E, [3])]
    )
    assert {(1, 3), (1, 3, 4), (2, 3), (2, 3, 4)} <= set(found(ALL, graph))


def test_branches_inside_a_cell() -> None:
    """An inception cell: two branches of three convolutions between a fork and a concatenate."""
    nodes: list[tuple[str, OpKind | NodeKind, list[int]]] = [("x", IN, []), ("conv", A, [0])]
    nodes += [("conv", A, [1]), ("conv", A, [2]), ("conv", A, [3])]
    nodes += [("conv", A, [1]), ("conv", A, [5]), ("conv", A, [6]), ("concat", I, [4, 7])]
    regions = set(found(ALL, DataflowGraph.from_edges(nodes)))
    assert {(2, 3), (3, 4), (2, 3, 4), (5, 6, 7), (1, 2, 3, 4, 5, 6, 7, 8)} <= regions


def test_cells_that_feed_the_next_two() -> None:
    """No cell post-dominates another; cells, and runs of neighbours, are regions nevertheless, with several exits."""
    regions = set(found(ALL, cell_network(6)))
    cells: dict[int, Nodes] = {c: tuple(range(3 * c + 2, 3 * c + 5)) for c in range(6)}
    assert {cells[c] for c in range(5)} <= regions
    assert {cells[c] + cells[c + 1] for c in range(4)} <= regions


def test_a_value_that_all_layers_read_does_not_hide_them() -> None:
    """A mask goes around every layer, so that no node is an articulation point in the strict sense."""
    nodes: list[tuple[str, OpKind | NodeKind, list[int]]] = [("x", IN, []), ("m", IN, [])]
    nodes += [("conv", A, [0]), ("mask", A, [1])]
    last, layers = 2, []
    for _ in range(4):
        at = len(nodes)
        nodes += [("dense", A, [last]), ("where", I, [at, 3]), ("dense", A, [at + 1]), ("add", B, [last, at + 2])]
        layers.append(tuple(range(at, at + 4)))
        last = at + 3
    regions = set(found(ALL, DataflowGraph.from_edges(nodes)))
    assert set(layers) <= regions
    assert layers[1] + layers[2] in regions


def test_a_result_of_every_layer_does_not_hide_them() -> None:
    """A decoder returns keys of each layer: towards the main result the layers still follow each other."""
    nodes: list[tuple[str, OpKind | NodeKind, list[int]]] = [("x", IN, []), ("conv", A, [0])]
    last, layers = 1, []
    for _ in range(4):
        at = len(nodes)
        nodes += [("dense", A, [last]), ("key", A, [at]), ("dense", A, [at]), ("concat", I, [last, at + 2])]
        layers.append(tuple(range(at, at + 4)))
        last = at + 3
    regions = set(found(ALL, DataflowGraph.from_edges(nodes)))
    assert set(layers) <= regions
    assert layers[1] + layers[2] in regions


def test_a_split_goes_with_its_projections() -> None:
    graph = DataflowGraph.from_edges(
        [("x", IN, []), ("conv", A, [0]), ("split", I, [1]), ("get", GET, [2]), ("get", GET, [2]), ("add", B, [3, 4])]
    )
    regions = set(found(ALL, graph))
    assert (2, 3, 4) in regions and (1, 2, 3, 4, 5) in regions
    assert all((2 in nodes) == (3 in nodes) == (4 in nodes) for nodes in regions)


def test_a_view_lies_inside_others_and_is_nothing_alone() -> None:
    graph = DataflowGraph.from_edges([("x", IN, []), ("dense", A, [0]), ("relax.reshape", I, [1]), ("dense", A, [2])])
    regions = set(found(ALL, graph))
    assert (1, 2, 3) in regions and (2,) not in regions


def test_the_result_tuple_stays_with_the_host() -> None:
    graph = DataflowGraph.from_edges(
        [("x", IN, []), ("relu", E, [0]), ("abs", E, [1]), ("tuple", NodeKind.TUPLE, [1, 2])]
    )
    assert set(found(ALL, graph)) == {(1,), (2,), (1, 2)}


@pytest.mark.parametrize("network", [residual_network, cell_network])
def test_the_number_of_regions_is_linear(network) -> None:  # type: ignore[no-untyped-def]
    small, large = len(found(ALL, network(50))), len(found(ALL, network(200)))
    assert large < 4.6 * small


def test_runs() -> None:
    assert list(runs(3, 2)) == [(0, 1), (1, 2), (2, 3), (0, 2), (1, 3), (0, 3)]
    assert (0, 4) in runs(9, 3) and (4, 8) in runs(9, 3) and (8, 9) in runs(9, 3) and (0, 8) in runs(9, 3)
    assert (1, 5) not in runs(9, 3)
    assert len(set(runs(1000, 3))) < 4000
