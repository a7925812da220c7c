"""Relax dataflow patterns: every match at every root, every alternative."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op
from tvm.relax.dpl import is_const, is_op, is_tuple, is_tuple_get_item, wildcard
from tvm.script import relax as R

from collage.graph import DataflowGraph
from collage.graph.candidates import CandidateSet
from collage.graph.from_relax import read_graph
from collage.rules import CompositePartitionRule, DFPatternPartitionRule, PatternMatch, UnionPartitionRule, library_rule
from collage.rules.base import PartitionSpec


def graph_of(build: Callable[..., Any], *shapes: tuple[int, ...]) -> DataflowGraph:
    builder = relax.BlockBuilder()
    parameters = [relax.Var(f"x{i}", R.Tensor(shape, "float32")) for i, shape in enumerate(shapes)]
    with builder.function("main", parameters):
        with builder.dataflow():
            output = builder.emit_output(build(builder.emit, *parameters))
        builder.emit_func_output(output)
    return read_graph(builder.get())


def labels(pattern: Any, graph: DataflowGraph, check: Callable[[PatternMatch], bool] | None = None) -> list[str]:
    """The labels of the candidates, as a sorted list."""
    candidates = PartitionSpec(DFPatternPartitionRule(pattern, check), "lib").candidates(graph)
    return sorted(c.sub_graph.label for c in candidates)


@pytest.fixture
def sum_of_two() -> DataflowGraph:
    """add(relu(x), abs(y))."""
    return graph_of(lambda emit, x, y: op.add(emit(op.nn.relu(x)), emit(op.abs(y))), (2, 4), (2, 4))


def relu_abs_or_neither() -> Any:
    either = is_op("relax.nn.relu")(wildcard()) | is_op("relax.abs")(wildcard()) | wildcard()
    return is_op("relax.add")(either, wildcard())


def test_several_matches_at_one_root(sum_of_two: DataflowGraph) -> None:
    """Relax's matcher would give the first; the RFC wants them all, with both orders of a commutative operator."""
    assert labels(relu_abs_or_neither(), sum_of_two) == ["abs+add", "add", "relu+add"]


def test_wildcards_stay_outside(sum_of_two: DataflowGraph) -> None:
    assert labels(is_op("relax.add")(wildcard(), wildcard()), sum_of_two) == ["add"]


def test_operators_that_do_not_commute_have_one_order() -> None:
    graph = graph_of(lambda emit, x, y: op.subtract(emit(op.nn.relu(x)), y), (2, 4), (2, 4))
    relu = is_op("relax.nn.relu")(wildcard())
    assert labels(is_op("relax.subtract")(relu, wildcard()), graph) == ["relu+subtract"]
    assert labels(is_op("relax.subtract")(wildcard(), relu), graph) == []


def test_overlapping_matches_at_different_roots() -> None:
    graph = graph_of(lambda emit, x: op.nn.relu(emit(op.nn.relu(emit(op.nn.relu(x))))), (2, 4))
    twice = is_op("relax.nn.relu")(is_op("relax.nn.relu")(wildcard()))
    assert len(PartitionSpec(DFPatternPartitionRule(twice), "lib").candidates(graph)) == 2


def test_one_pattern_object_is_one_expression() -> None:
    square = graph_of(lambda emit, x, y: op.multiply(x, x), (2, 4), (2, 4))
    product = graph_of(lambda emit, x, y: op.multiply(x, y), (2, 4), (2, 4))
    same = wildcard()
    pattern = is_op("relax.multiply")(same, same)
    assert labels(pattern, square) == ["multiply"]
    assert labels(pattern, product) == []


def test_constants_types_shapes_and_attributes() -> None:
    weight = relax.const(np.ones((4, 4, 3, 3), "float32"))
    graph = graph_of(lambda emit, x: op.nn.conv2d(x, weight, padding=1), (1, 4, 8, 8))
    conv = is_op("relax.nn.conv2d")
    assert labels(conv(wildcard(), is_const()), graph) == ["conv2d"]
    assert labels(conv(is_const(), wildcard()), graph) == []
    assert labels(conv(wildcard(), wildcard()).has_dtype("float32"), graph) == ["conv2d"]
    assert labels(conv(wildcard(), wildcard()).has_dtype("float16"), graph) == []
    assert labels(conv(wildcard().has_shape([1, 4, 8, 8]), wildcard()), graph) == ["conv2d"]
    assert labels(conv(wildcard().has_shape([1, 4, 9, 9]), wildcard()), graph) == []
    assert labels(conv(wildcard(), wildcard()).has_attr({"data_layout": "NCHW"}), graph) == ["conv2d"]
    assert labels(conv(wildcard(), wildcard()).has_attr({"data_layout": "NHWC"}), graph) == []


def test_and_not_and_open_argument_lists() -> None:
    graph = graph_of(lambda emit, x: op.reshape(emit(op.nn.relu(x)), (8,)), (2, 4))
    reshape = is_op("relax.reshape")(is_op("relax.nn.relu")(wildcard()), varg_default_wildcard=True)
    assert labels(reshape, graph) == ["relu+reshape"]
    assert labels(is_op("relax.reshape")(wildcard()), graph) == [], "reshape has two arguments"
    assert labels(reshape & wildcard().has_dtype("float32"), graph) == ["relu+reshape"]
    not_relu = ~is_op("relax.nn.relu")(wildcard())
    assert labels(is_op("relax.reshape")(not_relu, wildcard()), graph) == []


def test_tuples_and_projections() -> None:
    def build(emit: Any, x: Any) -> Any:
        parts = emit(op.split(x, 2, 1))
        return op.concat([emit(relax.TupleGetItem(parts, 1)), emit(relax.TupleGetItem(parts, 0))], 1)

    graph = graph_of(build, (2, 4))
    part = is_op("relax.split")(wildcard())
    first, second = is_tuple_get_item(part, 0), is_tuple_get_item(part, 1)
    assert labels(is_op("relax.concat")(is_tuple([second, first])), graph) == ["split+tuple_get+tuple_get+concat"]
    assert labels(is_op("relax.concat")(is_tuple([first, second])), graph) == []
    unordered = is_tuple([first, second], unordered=True)
    assert labels(is_op("relax.concat")(unordered), graph) == ["split+tuple_get+tuple_get+concat"]


def test_a_check_sees_the_match_and_may_refuse_it(sum_of_two: DataflowGraph) -> None:
    seen: list[PatternMatch] = []
    either = is_op("relax.nn.relu")(wildcard()) | is_op("relax.abs")(wildcard())
    pattern = is_op("relax.add")(either, wildcard())

    def without_abs(match: PatternMatch) -> bool:
        seen.append(match)
        return all(match.graph.nodes[i].op != "relax.abs" for i in match.inside)

    assert labels(pattern, sum_of_two, without_abs) == ["relu+add"]
    assert {match.root.op for match in seen} == {"relax.add"}
    assert all(either in match.bindings and pattern in match.bindings for match in seen)


def test_the_library_tree_labels_and_drops_what_is_used_elsewhere() -> None:
    def build(emit: Any, x: Any, y: Any) -> Any:
        kept = emit(op.nn.relu(x))
        return op.multiply(emit(op.add(kept, y)), kept)

    relu = is_op("relax.nn.relu")(wildcard())
    patterns = [
        ("lib.add_relu", is_op("relax.add")(relu, wildcard()), None),
        ("lib.relu", relu, None),
        ("lib.activation", relu, None),
    ]
    candidates = CandidateSet(PartitionSpec(library_rule(patterns), "lib").candidates(graph_of(build, (2, 4), (2, 4))))
    assert sorted(str(c) for c in candidates) == ["lib{2} lib.activation", "lib{2} lib.relu"]


def test_two_rules_for_one_match_give_one_candidate(sum_of_two: DataflowGraph) -> None:
    rule = DFPatternPartitionRule(relu_abs_or_neither())
    labelled = UnionPartitionRule(CompositePartitionRule("lib.add", rule), CompositePartitionRule("lib.add", rule))
    assert len(PartitionSpec(labelled, "lib").candidates(sum_of_two)) == 3
