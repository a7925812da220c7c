"""A network of three operators, tuned once by the command line itself, and a way to run commands in this process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from collage.cli.main import main


@dataclass(frozen=True)
class Ran:
    """How a command ended: exit status, and what it wrote."""

    status: int
    out: str
    err: str


Command = Callable[..., Ran]


@pytest.fixture
def collage_command(capfd: pytest.CaptureFixture[str]) -> Command:
    """Runs a command line in this process."""

    def run(*arguments: object) -> Ran:
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Ran(int(ended.value.code or 0), out, err)

    return run


def dense(path: Path, features: int = 16, dtype: int = TensorProto.FLOAT, rows: int | str = 2) -> Path:
    """Writes product, bias, relu: `x` (rows, features) -> `y` (rows, 8)."""
    rng = np.random.default_rng(0)
    numpy_dtype = helper.tensor_dtype_to_np_dtype(dtype)
    weights = {"w": rng.standard_normal((features, 8)), "b": rng.standard_normal(8)}
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w", "b"], ["g"], name="gemm"),
            helper.make_node("Relu", ["g"], ["y"], name="relu"),
        ],
        "dense",
        [helper.make_tensor_value_info("x", dtype, [rows, features])],
        [helper.make_tensor_value_info("y", dtype, [rows, 8])],
        [numpy_helper.from_array(value.astype(numpy_dtype), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)
    return path


@dataclass(frozen=True)
class Tuned:
    """What `collage tune` left behind: all files, and what it printed."""

    model: Path
    library: Path
    plan: Path
    page: Path
    records: Path
    out: str
    err: str


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    folder = tmp_path_factory.mktemp("cli")
    model = dense(folder / "dense.onnx")
    library, page, records = folder / "out" / "dense.so", folder / "page.html", folder / "records.db"
    arguments = ["tune", model, "-o", library, "--report", page, *tuning_options(records)]
    done = subprocess.run([*COLLAGE, *map(str, arguments)], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return Tuned(model, library, library.with_suffix(".plan.json"), page, records, done.stdout, done.stderr)


#: The command line as a process of its own.
COLLAGE = (sys.executable, "-m", "collage.cli.main")


def tuning_options(records: Path) -> list[str]:
    """One backend and one thread: quick."""
    return ["--backends", "onnxruntime", "--threads", "1", "--records", str(records)]
