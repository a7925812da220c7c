"""Engines by their own front door: they take the user's file, and give the numbers that the network has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from collage.deployed.rivals import ENGINES, open_rival, rivals_of
from collage.errors import CollageError

WEIGHT = np.random.default_rng(0).standard_normal((4, 3), dtype=np.float32)
X = np.random.default_rng(1).standard_normal((2, 4), dtype=np.float32)


@pytest.fixture
def product(tmp_path: Path) -> Path:
    """x @ weight, for any number of rows."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 3])],
        [onnx.numpy_helper.from_array(WEIGHT, "w")],
    )
    path = tmp_path / "product.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_a_rival_runs_the_file_whose_dimensions_are_bound_by_the_inputs(engine: str, product: Path) -> None:
    call = open_rival(engine, str(product), [X], threads=1)
    for _ in range(2):
        (found,) = call()
        assert np.allclose(found, X @ WEIGHT, atol=1e-5)


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_a_file_of_other_inputs_is_refused(engine: str, product: Path) -> None:
    with pytest.raises(CollageError, match="takes 1 inputs, the network as Collage loads it 2"):
        open_rival(engine, str(product), [X, X], threads=1)


def test_rivals_need_a_file_and_the_cpu(product: Path) -> None:
    assert {rival.engine for rival in rivals_of(product, ["cpu"])} <= set(ENGINES)
    assert rivals_of(None, ["cpu"]) == [] and rivals_of(product, ["cuda"]) == []
    assert rivals_of(product, ["cuda", "cpu"]) == rivals_of(product, ["cpu"])


def test_a_rival_of_another_file_is_another_one(product: Path) -> None:
    (first, *_) = rivals_of(product, ["cpu"])
    before = first.digest
    product.write_bytes(product.read_bytes() + b"\x00")
    assert first.digest != before
