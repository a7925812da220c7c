"""One file for several shapes: the shapes of a call choose what runs, and others run untuned or are refused."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import collage
import collage.runtime
from collage.api.plan_set import PlanSet
from collage.compile.model_set import CompiledSet, Dynamic
from collage.errors import CompiledModelError, FrontendError, ModelInputError, PlanError
from collage.runtime.packed_file import PackedFile
from tests.collage.runtime.test_model_lifetime import in_a_fork

SHAPES = [{"x": (1, 64)}, {"x": (8, 64)}]
WEIGHT = np.random.default_rng(1).standard_normal((64, 1000)).astype("float32")


def network(path: Path) -> Path:
    """x, z -> x @ weight + z, and relu(z): x has (n, 64), z has (n, 1)."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["p"]),
            helper.make_node("Add", ["p", "z"], ["y"]),
            helper.make_node("Relu", ["z"], ["r"]),
        ],
        "network",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", k]) for n, k in (("x", 64), ("z", 1))],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("y", "r")],
        [numpy_helper.from_array(WEIGHT, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def values(rows: int) -> list[np.ndarray]:
    rng = np.random.default_rng(rows)
    return [rng.standard_normal((rows, extent)).astype("float32") for extent in (64, 1)]


def assert_right(results: Any, inputs: list[np.ndarray]) -> None:
    x, z = inputs
    np.testing.assert_allclose(results[0], x @ WEIGHT + z, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(results[1], np.maximum(z, 0))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return network(tmp_path_factory.mktemp("shapes") / "model.onnx")


@pytest.fixture(scope="module")
def plans(model: Path) -> PlanSet:
    return collage.partition_shapes(
        model,
        SHAPES,
        backends=["onnxruntime", "openvino"],
        effort="quick",
        confirm_end_to_end=False,
        records=model.with_name("records.db"),
        threads=1,
    )


@pytest.fixture(scope="module")
def exported(plans: PlanSet, model: Path) -> Path:
    path = model.with_suffix(".so")
    plans.compile().export(path)
    return path


def test_the_shapes_of_a_call_choose(exported: Path) -> None:
    model = collage.runtime.load(exported, strict=True)
    for rows in (8, 1, 8):
        assert_right(model(*values(rows)), values(rows))


def test_other_shapes_run_and_say_so_once(exported: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = collage.runtime.load(exported)
    with caplog.at_level(logging.WARNING, "collage"):
        assert_right(model(*values(1)), values(1))
        assert not caplog.messages
        for rows in (3, 5, 3):
            assert_right(model(*values(rows)), values(rows))
    (line,) = caplog.messages
    assert "x=3,64 z=3,1" in line and "onnxruntime, untuned" in line and "x=1,64 z=1,1; x=8,64 z=8,1" in line


def test_strict_use_refuses_other_shapes_and_lists_those_that_were_tuned(exported: Path) -> None:
    model = collage.runtime.load(exported, strict=True)
    with pytest.raises(ModelInputError, match=r"for x=3,64 z=3,1: .*strict.* Tuned are x=1,64 z=1,1; x=8,64 z=8,1"):
        model(*values(3))


@pytest.mark.parametrize("strict", [False, True])
def test_what_the_network_cannot_take_is_refused(exported: Path, strict: bool) -> None:
    model = collage.runtime.load(exported, strict)
    x, z = values(8)
    with pytest.raises(ModelInputError, match="takes 2 inputs \\(x, z\\), 1 were given"):
        model(x)
    with pytest.raises(ModelInputError, match="input x has shape \\(64,\\), and the model declares \\[\\?, 64\\]"):
        model(x[0], z)
    with pytest.raises(ModelInputError, match="input x has shape \\(8, 63\\)"):
        model(x[:, 1:], z)
    with pytest.raises(ModelInputError, match="float64"):
        model(x.astype("float64"), z)
    with pytest.raises(ModelInputError, match="input x has shape \\(\\)"):
        model("text", z)
    assert_right(model(x, z), [x, z])


def test_shapes_that_do_not_agree_are_the_engines_error(exported: Path) -> None:
    model = collage.runtime.load(exported)
    with pytest.raises(CompiledModelError, match="onnxruntime cannot run the network with these shapes"):
        model(values(3)[0], values(5)[1])
    assert_right(model(*values(3)), values(3))


def test_buffers_are_bound_by_their_shapes(exported: Path) -> None:
    model = collage.runtime.load(exported)
    one, eight = model.bind(values(1)), model.bind(values(8))
    for _ in range(2):
        assert_right(one(), values(1))
        assert_right(eight(), values(8))
    assert [array.shape for array in model.bind().inputs] == [(1, 64), (1, 1)]
    with pytest.raises(ModelInputError, match=r"buffers are bound for shapes that were tuned. Tuned are"):
        model.bind(values(3))
    with pytest.raises(ModelInputError, match="takes 2 inputs"):
        model.bind(values(8)[:1])


def test_threads_share_a_model_whatever_the_shapes(exported: Path) -> None:
    model = collage.runtime.load(exported)
    wrong: list[BaseException] = []

    def call(rows: int) -> None:
        inputs = values(rows)
        try:
            for _ in range(100):
                assert_right(model(*inputs), inputs)
        except BaseException as error:
            wrong.append(error)

    threads = [Thread(target=call, args=(rows,)) for rows in (1, 8, 3, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_fresh_process_runs_every_shape(exported: Path, tmp_path: Path) -> None:
    script = (
        "import sys, numpy as np, collage.runtime\n"
        "model = collage.runtime.load(sys.argv[1])\n"
        "rows = [1, 3, 8]\n"
        "print([float(model(np.ones((n, 64), 'float32'), np.ones((n, 1), 'float32'))[0].sum()) / n for n in rows])\n"
        "print([name for name in sys.modules if name in ('tvm', 'onnx', 'collage.api', 'collage.compile')])\n"
    )
    done = subprocess.run([sys.executable, "-c", script, exported], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    sums, modules = map(json.loads, done.stdout.replace("'", '"').splitlines())
    np.testing.assert_allclose(sums, [WEIGHT.sum() + 1000] * 3, rtol=1e-3)
    assert modules == [] and "untuned" in done.stderr


def test_a_fork_cannot_call_a_model_of_before(exported: Path) -> None:
    model = collage.runtime.load(exported)
    model(*values(3))

    def refused() -> None:
        for rows in (1, 3):
            with pytest.raises(CompiledModelError, match="forked"):
                model(*values(rows))

    assert in_a_fork(refused) == 0


def test_equal_weights_are_stored_once(exported: Path) -> None:
    packed = PackedFile.open(exported)
    assert len(packed.files) == 3
    assert packed.unpacked_bytes() - len(packed.content) > 1.8 * WEIGHT.nbytes


def test_a_file_that_was_cut_off_is_refused(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.so").write_bytes(exported.read_bytes()[:-100])
    with pytest.raises(CompiledModelError, match="its end is missing"):
        collage.runtime.load(tmp_path / "cut.so")


def test_openvino_runs_other_shapes_where_it_is_alone(plans: PlanSet) -> None:
    compiled = plans.compile()
    assert compiled.dynamic is not None
    dynamic = Dynamic(compiled.dynamic.model, {**compiled.dynamic.facts, "engine": "openvino"})
    alone = CompiledSet(compiled.executables[:1], dynamic)
    assert_right(alone(*values(1)), values(1))
    assert_right(alone(*values(3)), values(3))
    nobody = CompiledSet(compiled.executables, None).load()
    assert_right(nobody(*values(8)), values(8))
    with pytest.raises(ModelInputError, match=r"the file has no engine for other shapes. Tuned are x=1,64"):
        nobody(*values(3))


def test_plans_are_written_and_read_again(plans: PlanSet, model: Path, tmp_path: Path) -> None:
    plans.save(tmp_path / "plans.json")
    again = PlanSet.load(tmp_path / "plans.json", model)
    assert [plan.to_dict() for plan in again.plans] == [plan.to_dict() for plan in plans.plans]
    with pytest.raises(PlanError, match="plans for several shapes"):
        collage.Plan.load(tmp_path / "plans.json", collage.load(model, SHAPES[0]))
    plans.plans[0].save(tmp_path / "plan.json")
    with pytest.raises(PlanError, match="not plans for several shapes"):
        PlanSet.load(tmp_path / "plan.json", model)


def test_shapes_are_checked_before_anything_is_measured(model: Path) -> None:
    with pytest.raises(FrontendError, match="given twice: x=1,64 z=1,1"):
        collage.partition_shapes(model, [{"x": (1, 64)}, {"z": (1, 1)}])
    with pytest.raises(FrontendError, match="has 1 dimensions"):
        collage.partition_shapes(model, [{"x": (1, 64)}, {"x": (1,)}])
    with pytest.raises(FrontendError, match="no shapes"):
        collage.partition_shapes(model, [])
