"""The user's ONNX file as one partition: built, exported, run; in a plan's file; and where it cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import collage
import collage.runtime
from collage.backends.resolve import resolve_backends
from collage.compile.build import build
from collage.compile.rewrite import apply, file_partition, whole_files
from collage.errors import CodegenError, PlanError
from collage.graph.from_relax import read_graph
from collage.planned.data import PlannedPartition

NAMES = ["openvino", "onnxruntime", "tvm"]
X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two results, of which one is read by the other; the number of rows is open."""
    weight = numpy_helper.from_array(np.eye(4, dtype=np.float32) * 2, "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["z"])]
    x, y, z = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 4]) for name in "xyz")
    graph = helper.make_graph(nodes, "g", [x], [z, y], [weight])
    file = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), file)
    return file


def _parts(path: Path) -> tuple[Any, Any, dict[str, Any]]:
    module = collage.load(path, {"x": X.shape})
    return module, read_graph(module), dict(resolve_backends(NAMES, "cpu"))


@pytest.mark.parametrize("engine", ["openvino", "onnxruntime"])
def test_the_file_runs_with_the_shapes_of_the_plan(path: Path, tmp_path: Path, engine: str) -> None:
    module, graph, backends = _parts(path)
    files = whole_files(module, graph, backends)
    assert sorted(files) == ["onnxruntime on the file", "openvino on the file"]
    placement = files[f"{engine} on the file"]
    assert file_partition(placement) == placement[0]
    build(apply(module, graph, placement, backends), list(backends.values()), 2).export(tmp_path / "model.so")
    z, y = collage.runtime.load(tmp_path / "model.so")(X)
    np.testing.assert_allclose(y, 2 * X, rtol=1e-6)
    np.testing.assert_allclose(z, np.maximum(2 * X, 0), rtol=1e-6)


def test_a_network_of_no_file_has_none(path: Path) -> None:
    module = collage.load(onnx.load(path), {"x": X.shape})
    assert whole_files(module, read_graph(module), _parts(path)[2]) == {}


def test_a_file_that_has_changed_is_another_one(path: Path) -> None:
    module, graph, backends = _parts(path)
    placement = whole_files(module, graph, backends)["openvino on the file"]
    path.write_bytes(path.read_bytes() + b"\0\0")
    with pytest.raises(CodegenError, match="the file has changed since the plan was made"):
        apply(module, graph, placement, backends)
    path.unlink()
    with pytest.raises(CodegenError, match="load it from that file"):
        apply(module, graph, placement, backends)


def test_a_plan_that_runs_the_file_is_saved_and_loaded(path: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"confirm_end_to_end": False, "estimator": "cached", "records": tmp_path / "r.db"}
    plan = collage.partition(path, NAMES, shapes={"x": X.shape}, **options)
    graph = read_graph(plan.module)
    (candidate,) = whole_files(plan.module, graph, plan.backends)["onnxruntime on the file"]
    inside = tuple(candidate.sub_graph.inside)
    partition = PlannedPartition(
        backend="onnxruntime",
        nodes=inside,
        operators=tuple(graph.nodes[i].op for i in inside),
        composites=tuple((label, tuple(nodes)) for label, nodes in candidate.composites),
        cost=plan.partitions[0].cost,
    )
    edited = msgspec.structs.replace(plan, choice="onnxruntime on the file", partitions=(partition,))
    edited.save(tmp_path / "plan.json")
    loaded = collage.Plan.load(tmp_path / "plan.json", collage.load(path, {"x": X.shape}))
    np.testing.assert_allclose(loaded.compile()(X)[1], 2 * X, rtol=1e-6)
    with pytest.raises((CodegenError, PlanError), match="load it from that file"):
        collage.Plan.load(tmp_path / "plan.json", collage.load(onnx.load(path), {"x": X.shape})).compile()
