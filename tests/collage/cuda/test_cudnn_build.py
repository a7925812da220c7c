"""The cuDNN engine's source against NVIDIA's own headers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import tvm_ffi

from collage.runtime.cuda.cudnn.engine import ENGINE


@pytest.mark.cuda_build
def test_compiles_without_a_warning_and_links_against_nothing_of_nvidia(tmp_path: Path) -> None:
    theirs = [flag for folder in ENGINE.headers() for flag in ("-isystem", folder)]
    ours = [f"-I{tvm_ffi.libinfo.find_include_path()}", f"-I{tvm_ffi.libinfo.find_dlpack_include_path()}"]
    flags = ["-std=c++17", "-O0", "-fPIC", "-Wall", "-Wextra", "-Werror", *ours, *theirs]
    built = tmp_path / "cudnn.o"
    subprocess.run(["c++", *flags, "-c", str(ENGINE.source), "-o", str(built)], check=True, timeout=240)
    symbols = subprocess.run(["nm", "-u", str(built)], check=True, capture_output=True, text=True).stdout.split()
    assert [name for name in symbols if name.startswith(("cuda", "cudnn", "cu", "nvrtc"))] == []
