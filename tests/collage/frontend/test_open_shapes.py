"""Ranks of results whose shapes depend on data, and what is logged where a source of shapes says nothing."""

from __future__ import annotations

import logging

import numpy as np
import onnxruntime
import pytest
from frontend_cases import BOOL, FLOAT, INT64, model, node, normal
from onnx import ModelProto, helper

from collage.backends.onnx.onnxruntime import ONNXRuntimeBackend
from collage.compile.build import build
from collage.compile.rewrite import apply
from collage.errors import UnsupportedOperatorError
from collage.frontend import load, output_specs
from collage.frontend.onnx.inference import extents, inferred
from collage.graph.candidates import CandidatePartition
from collage.graph.from_relax import read_graph
from collage.graph.sub_graph import SubGraph
from collage.measure.reference import ReferenceRun


def assert_as_onnx_runtime(proto: ModelProto, inputs: list[np.ndarray]) -> None:
    """Collage with ONNX Runtime alone gives what ONNX Runtime gives on the original."""
    module = load(proto)
    graph, backend = read_graph(module), ONNXRuntimeBackend()
    whole = CandidatePartition(SubGraph(graph, graph.coverable), backend.name)
    results = build(apply(module, graph, [whole], {backend.name: backend}), [backend], 1)(*inputs)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, {info.name: a for info, a in zip(session.get_inputs(), inputs, strict=True)})
    for got, want in zip(results if isinstance(results, tuple) else (results,), expected, strict=True):
        np.testing.assert_array_equal(np.asarray(got), want)


def test_a_split_by_sizes_that_come_at_run_time() -> None:
    proto = model(
        [node("Split", ["x", "sizes"], ["a", "b"])],
        {"x": (FLOAT, [6, 2]), "sizes": (INT64, [2])},
        {"a": FLOAT, "b": FLOAT},
    )
    assert [spec.shape for spec in output_specs(load(proto))] == [(-1, -1)] * 2
    for sizes in ([2, 4], [5, 1]):
        assert_as_onnx_runtime(proto, [normal(6, 2), np.array(sizes)])


def test_ranks_follow_through_several_operators() -> None:
    """No sample is legal: parts of one or two elements are not all of the seven."""
    nodes = [
        node("Split", ["x", "sizes"], ["a", "b"]),
        node("Neg", ["b"], ["n"]),
        node("Unsqueeze", ["n", "axes"], ["u"]),
        node("Tile", ["u", "times"], ["out"]),
    ]
    inputs = {"x": (FLOAT, [7]), "sizes": (INT64, [2]), "axes": (INT64, [2]), "times": (INT64, [3])}
    proto = model(nodes, inputs, {"out": FLOAT})
    assert output_specs(load(proto))[0].shape == (-1, -1, -1)
    assert_as_onnx_runtime(proto, [normal(7), np.array([3, 4]), np.array([0, 2]), np.array([2, 1, 1])])


def test_reference_values_where_a_constant_is_refused_and_an_input_is_not() -> None:
    """Limits of shape [1], of a range."""
    weights = {"zero": np.array(0), "one": np.array(1), "from": np.array([1]), "to": np.array([2])}
    nodes = [node("Slice", ["n", "from", "to"], ["last"]), node("Range", ["zero", "last", "one"], ["y"])]
    proto = model(nodes, {"n": (INT64, [2])}, {"y": INT64}, weights)
    module = load(proto)
    run = ReferenceRun(module, read_graph(module), 1, [np.array([2, 5])])
    np.testing.assert_array_equal(run.outputs[0], np.arange(5))


def reshaped(rank: int | None) -> ModelProto:
    """A tensor in a shape of which not even the length follows; its rank is declared, or not."""
    nodes = [
        node("Compress", ["sizes", "which"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["y"], allowzero=1),
    ]
    proto = model(nodes, {"x": (FLOAT, [6]), "sizes": (INT64, [3]), "which": (BOOL, [3])}, {"y": FLOAT})
    if rank is not None:
        proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, [None] * rank))
    return proto


def test_a_rank_that_does_not_follow_is_the_one_that_the_network_declares() -> None:
    assert output_specs(load(reshaped(2)))[0].shape == (-1, -1)
    assert_as_onnx_runtime(reshaped(2), [normal(6), np.array([2, 5, 3]), np.array([True, False, True])])
    with pytest.raises(UnsupportedOperatorError, match="the rank of an output that follows from it depends on data"):
        load(reshaped(None))


def test_why_onnx_infers_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    proto = model([helper.make_node("Abs", ["x"], ["y"], domain="nobody")], {"x": (FLOAT, [3])}, {"y": FLOAT})
    with caplog.at_level(logging.DEBUG, "collage"):
        assert extents(inferred(proto, "Abs (node 'n')").graph.output[0].type.tensor_type) is None
    assert "Abs (node 'n'): ONNX infers no shapes" in caplog.text and "nobody" in caplog.text


def test_why_a_sample_does_not_run_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "collage"), pytest.raises(UnsupportedOperatorError):
        load(reshaped(None))
    lines = [r.getMessage() for r in caplog.records if "does not run on sample" in r.getMessage()]
    assert lines and all(line.startswith("Compress") and "Reshape" in line for line in lines)
