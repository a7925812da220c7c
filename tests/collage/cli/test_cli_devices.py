"""`collage tune --devices`: a plan over two devices, from the command line to a model that runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.collage.cli.conftest import Command, Ran

ENTRY_POINTS = """
[collage.backends]
second = tests.e2e.two_devices.backend:SecondDevice

[collage.estimators]
told = tests.e2e.two_devices.told:Told
"""


def model(path: Path) -> Path:
    """Writes exp(relu(x W)), of 2 by 16 and 16 by 8."""
    weight = np.random.default_rng(0).standard_normal((16, 8), dtype=np.float32)
    steps = [("MatMul", ["x", "w"], "a"), ("Relu", ["a"], "b"), ("Exp", ["b"], "y")]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [2, 16]), ("y", [2, 8]))]
    graph = helper.make_graph(
        [helper.make_node(op, reads, [gives]) for op, reads, gives in steps],
        "chain",
        values[:1],
        values[1:],
        [numpy_helper.from_array(weight, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture
def tune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collage_command: Command):  # type: ignore[no-untyped-def]
    """Runs `collage tune` with a second device's backend installed, as a package of its own would be."""
    info = tmp_path / "second-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: second\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    options = ["-o", tmp_path / "out.so", "--records", tmp_path / "records.db", "--threads", "1", "--no-confirm"]

    def run(*arguments: object) -> Ran:
        return collage_command("tune", model(tmp_path / "chain.onnx"), *options, *arguments)

    return run


def test_backends_of_all_devices_compete_and_copies_are_shown(
    tune: Command, collage_command: Command, tmp_path: Path
) -> None:
    told = ["--estimator", "told", "--set", "estimator.copy=0.5"]
    done = tune(
        "--devices", "cpu,cpu:1", "--backends", "tvm,second", *told, "--report", tmp_path / "page.html", "--details"
    )
    assert done.status == 0, done.err
    rows = [line.split() for line in done.out.splitlines()]
    assert [row[2] for row in rows if row[1:2] in (["tvm"], ["second"])] == ["matmul", "relu+exp"]
    assert "Between devices: 2 copies, 128 bytes, 1000 ms in the sum" in done.out
    assert ["cpu", "cpu:1", "matmul", "64", "500"] in rows and ["cpu:1", "cpu", "exp", "64", "500"] in rows
    assert "Between devices" in (tmp_path / "page.html").read_text()
    ran = collage_command("run", tmp_path / "out.so", "--random")
    assert ran.status == 0, ran.err


def test_a_device_that_is_no_device_is_named(tune: Command) -> None:
    done = tune("--devices", "cpu,tpu")
    assert done.status != 0 and "--device is cpu or cuda, not 'tpu'" in done.err


def test_a_backend_of_no_given_device_is_named(tune: Command) -> None:
    done = tune("--devices", "cpu,cpu:2", "--backends", "tvm,second")
    assert done.status != 0 and "backend second runs on cpu:1, which is not among cpu, cpu:2" in done.err
