"""Inputs that a network is run on: made-up ones that fit it, and those that are given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import collage
from collage.errors import CollageError, ModelInputError
from collage.graph.from_relax import read_graph
from collage.measure.inputs import random_inputs
from collage.measure.reference import ReferenceRun


def _branch(index: int, name: str) -> onnx.GraphProto:
    """An element of `x`, by a number that has to be below 8."""
    place = numpy_helper.from_array(np.array([index], np.int64), f"{name}_index")
    node = helper.make_node("Gather", ["x", f"{name}_index"], [f"{name}_y"], axis=1)
    out = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, [1, 1])
    return helper.make_graph([node], name, [], [out], [place])


def of_a_rate(rate: int = 16000, other: int = 1000) -> onnx.ModelProto:
    """Only `rate` takes the branch that fits."""
    asked = numpy_helper.from_array(np.array(rate, np.int64), "asked")
    nodes = [
        helper.make_node("Equal", ["rate", "asked"], ["is_asked"]),
        helper.make_node("If", ["is_asked"], ["y"], then_branch=_branch(3, "a"), else_branch=_branch(other, "b")),
    ]
    graph = helper.make_graph(
        nodes,
        "rates",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8]),
            helper.make_tensor_value_info("rate", TensorProto.INT64, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1])],
        [asked],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _run_of(module: Any, inputs: Any = None) -> ReferenceRun:
    return ReferenceRun(module, read_graph(module), 1, inputs)


def test_a_number_that_the_network_asks_for_is_given() -> None:
    module = collage.load(of_a_rate())
    x, rate = random_inputs(module)
    assert rate == 16000 and rate.shape == () and rate.dtype == np.int64
    np.testing.assert_array_equal(_run_of(module).outputs[0], x[:, 3:4])


def test_numbers_that_random_ones_are_anyway_change_nothing() -> None:
    assert {int(random_inputs(collage.load(of_a_rate(rate=1)), seed)[1]) for seed in range(8)} == {0, 1}


def test_where_random_inputs_do_not_fit_the_error_asks_for_others() -> None:
    module = collage.load(of_a_rate(rate=1))
    seed = next(seed for seed in range(20) if random_inputs(module, seed)[1] == 0)
    with pytest.raises(CollageError, match=r"does not run on random inputs: .*--inputs SAMPLE.npz"):
        _ = ReferenceRun(module, read_graph(module), 1, seed=seed).outputs


def test_inputs_are_given_by_name_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "sample.npz"
    np.savez(path, rate=np.array(1, np.int64), x=np.ones((1, 8), np.float32))
    options: dict[str, Any] = {"confirm_end_to_end": False, "estimator": "cached", "records": tmp_path / "r.db"}
    model = of_a_rate(rate=1)
    assert collage.partition(model, ["onnxruntime", "tvm"], inputs=path, **options).partitions
    with pytest.raises(ModelInputError, match="no 'rate'"):
        collage.partition(model, ["onnxruntime", "tvm"], inputs={"x": np.ones((1, 8), np.float32)}, **options)
