"""The cublas engine against NVIDIA's own headers and library; no device is needed for what is tested here."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from test_cublas import CASES, make_blob
from tvm_ffi.libinfo import find_dlpack_include_path, find_include_path

from collage.runtime.cuda.cublas.engine import ENGINE

pytestmark = pytest.mark.cuda_build

_DESCRIBE = """
import sys, tvm_ffi
from collage.runtime.cuda.cublas.engine import ENGINE
create = ENGINE.load()
assert tvm_ffi.get_global_func("collage.cuda.cublas.version")() >= 130000
describe = tvm_ffi.get_global_func("collage.cuda.cublas.describe")
for path in sys.argv[1:]:
    describe(open(path, "rb").read())
    try:
        create(open(path, "rb").read(), "{}")
    except RuntimeError as error:  # without a device: it is the first thing that is asked for after the descriptions
        assert "cuda" in str(error).lower(), error
print("described", len(sys.argv) - 1)
"""


def test_the_engine_compiles_without_a_warning(tmp_path: Any) -> None:
    own = [f"-I{folder}" for folder in (find_include_path(), find_dlpack_include_path())]
    theirs = [argument for folder in ENGINE.headers() for argument in ("-isystem", folder)]
    flags = ["-std=c++17", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", *own, *theirs]
    subprocess.run(["c++", *flags, "-c", str(ENGINE.source), "-o", str(tmp_path / "cublas.o")], check=True)


def test_nothing_is_linked_against_nvidias_libraries() -> None:
    missing = subprocess.run(["nm", "-u", ENGINE.object_file()], check=True, capture_output=True, text=True)
    symbols = [line.split()[-1] for line in missing.stdout.splitlines()]
    assert symbols and not [symbol for symbol in symbols if symbol.startswith(("cuda", "cublas", "cu"))]


def test_the_library_takes_every_description(tmp_path: Any) -> None:
    """In another process: this one has the emulated engine under the same name."""
    paths = []
    for i, case in enumerate(CASES.values()):
        for dtype in ("float32", "float16", "bfloat16"):
            paths.append(tmp_path / f"{i}-{dtype}.blob")
            paths[-1].write_bytes(make_blob(case, dtype))
    done = subprocess.run(
        [sys.executable, "-c", _DESCRIBE, *map(str, paths)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip().splitlines()[-1] == f"described {len(paths)}"
