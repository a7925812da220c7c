"""A network in bfloat16, which NumPy does not know, from ONNX to arrays in a deployed process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import collage
from benchmarks.workloads.builder import GraphBuilder
from benchmarks.workloads.layers import layer_norm, linear
from collage.arrays import with_type
from collage.errors import ModelInputError
from collage.testing import fresh
from tests.e2e.efforts import EVERYTHING

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def block(dtype: str) -> Any:
    """A linear map, a sum and a norm, for which TVM has no kernel in bfloat16."""
    b = GraphBuilder("block", 0, dtype)
    x = b.input("x", (1, 8, 32))
    b.output(layer_norm(b, b.op("Add", linear(b, x, (32, 32)), x), 32, 1e-5), "y", (1, 8, 32))
    return b.finish()


def sample() -> tuple[np.ndarray, np.ndarray]:
    """An input, and what the network in float32 gives for it."""
    x = np.random.default_rng(0).standard_normal((1, 8, 32)).astype(BFLOAT16)
    module = collage.load(block("float32"))
    plan = collage.partition(module, ["tvm"], estimator="cached", confirm_end_to_end=False, records=":memory:")
    return x, np.asarray(plan.compile()(x.astype("float32")))


def assert_near(result: np.ndarray, expected: np.ndarray) -> None:
    assert result.shape == expected.shape
    assert np.abs(result.astype("float32") - expected).max() < 4e-2 * np.abs(expected).max()


@pytest.mark.long
def test_it_is_tuned_confirmed_and_deployed(tmp_path: Path) -> None:
    x, expected = sample()
    plan = collage.partition(
        collage.load(block("bfloat16")), ["tvm"], records=tmp_path / "records.db", threads=1, effort=EVERYTHING
    )
    assert plan.confirmation is not None
    assert {row.name for row in plan.confirmation.contestants if row.latency.is_finite} >= {"tvm alone"}
    model = plan.compile()
    result = model(x)
    assert result.dtype == BFLOAT16
    assert_near(result, expected)
    with pytest.raises(ModelInputError, match="has dtype float32, the model takes bfloat16"):
        model(x.astype("float32"))

    model.export(tmp_path / "model.so")
    loaded = collage.runtime.load(tmp_path / "model.so")
    assert isinstance(loaded, collage.runtime.CompiledModel)
    again = np.zeros_like(result)
    loaded.bind([x], [again])()
    np.testing.assert_array_equal(again, result)
    np.savez(tmp_path / "in.npz", x)
    fresh.run("collage.testing.deployed_process", [str(tmp_path / name) for name in ("model.so", "in.npz", "out.npz")])
    with np.load(tmp_path / "out.npz") as found:
        np.testing.assert_array_equal(with_type(found["arr_0"]), result)
    np.save(tmp_path / "x.npy", x)
    command = ["run", str(tmp_path / "model.so"), "--input", f"x={tmp_path / 'x.npy'}", "-o", str(tmp_path / "o.npz")]
    subprocess.run([sys.executable, "-m", "collage.cli.main", *command], check=True)
    with np.load(tmp_path / "o.npz") as found:
        np.testing.assert_array_equal(found["y"], result.astype("float32"))


def test_tensors_of_pytorch_are_taken() -> None:
    torch = pytest.importorskip("torch")
    x, expected = sample()
    module = collage.load(block("bfloat16"))
    plan = collage.partition(module, ["tvm"], estimator="cached", confirm_end_to_end=False, records=":memory:")
    tensor = torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    assert_near(plan.compile()(tensor), expected)
