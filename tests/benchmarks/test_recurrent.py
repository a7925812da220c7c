"""What a profile says of recurrent layers."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks.wild.recurrent import _RUNS, products, recurrent_nodes, share


def event(operator: str, microseconds: float, **shapes: Any) -> dict[str, Any]:
    return {"dur": microseconds, "args": {"op_name": operator, **shapes}}


def test_a_share_counts_no_operator_twice() -> None:
    events = [event("If", 100.0), event("LSTM", 30.0), event("Conv", 60.0)]
    recurrent, whole = share(events)
    assert (recurrent * _RUNS, whole * _RUNS) == pytest.approx((30e-6, 90e-6))


def test_products_of_a_layer_of_both_directions() -> None:
    shapes = {"input_type_shape": [{"float": [24, 1, 512]}], "output_type_shape": [{"float": [24, 2, 1, 256]}]}
    assert products([event("GRU", 1.0, **shapes)]) * _RUNS == 2 * 24 * 2 * 3 * 256 * (512 + 256)


def test_layers_inside_sub_graphs_are_found() -> None:
    inner = helper.make_graph([helper.make_node("LSTM", ["x", "w", "r"], ["y"])], "inner", [], [])
    node = helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=inner)
    graph = helper.make_graph([node], "outer", [helper.make_tensor_value_info("c", TensorProto.BOOL, [])], [])
    assert isinstance(graph, onnx.GraphProto) and len(list(recurrent_nodes(graph))) == 2
