"""A package outside the tree ships a backend with an engine in C++: it is installed, tuned, exported and run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

_SOURCES = Path(__file__).parent / "third_party"
_SHAPE = (8, 32)
_ADDENDS = [np.random.default_rng(seed).standard_normal(_SHAPE, dtype=np.float32) for seed in (1, 2)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the package is installed as `pip install` does it."""
    sources, target = (tmp_path_factory.mktemp(name) for name in ("sources", "site"))
    shutil.copytree(_SOURCES, sources, dirs_exist_ok=True)
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--disable-pip-version-check", "--target", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(sources)], check=True, timeout=120)
    return target


def network(path: Path) -> None:
    """A sum, relu, and another sum."""
    nodes = [
        helper.make_node("Add", ["x", "a"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["positive"]),
        helper.make_node("Add", ["positive", "b"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, _SHAPE) for name in ("x", "y")]
    constants = [numpy_helper.from_array(value, name) for value, name in zip(_ADDENDS, ("a", "b"), strict=True)]
    graph = helper.make_graph(nodes, "network", ports[:1], ports[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)


def collage(site: Path, *arguments: str | Path, **environment: str) -> str:
    """What the command prints; only its process finds the package."""
    paths = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "collage.cli.main", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.long
def test_a_package_brings_a_backend_with_an_engine_in_cpp(site: Path, tmp_path: Path) -> None:
    model, compiled, plan = (tmp_path / name for name in ("model.onnx", "model.so", "plan.json"))
    network(model)
    options = ["--backends", "acme-relu", "--threads", "1", "--no-confirm"]
    collage(site, "tune", model, "-o", compiled, "--plan", plan, "--records", tmp_path / "records.db", *options)
    assert {part["backend"] for part in json.loads(plan.read_text())["partitions"]} == {"acme-relu"}

    x = np.random.default_rng(0).standard_normal(_SHAPE, dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    # The file carries the engine: a compiler is not needed, nor what was compiled before.
    nowhere = {"TVM_FFI_CACHE_DIR": str(tmp_path / "empty"), "CXX": "no-such-compiler"}
    collage(site, "run", compiled, "--input", f"x={tmp_path / 'x.npy'}", "-o", tmp_path / "y.npz", **nowhere)
    expected = np.maximum(x + _ADDENDS[0], 0) + _ADDENDS[1]
    with np.load(tmp_path / "y.npz") as outputs:
        np.testing.assert_allclose(outputs["y"], expected, rtol=1e-6, atol=1e-6)
