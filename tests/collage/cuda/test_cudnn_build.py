"""The cuDNN engine's source against NVIDIA's own headers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import tvm_ffi

from collage.runtime.cuda import native


@pytest.mark.cuda_build
def test_compiles_without_a_warning_and_links_against_nothing_of_nvidia(tmp_path: Path) -> None:
    source = Path(native.__file__).with_name(native.ENGINES["cudnn"].source)
    folders = native.include_folders(native.ENGINES["cudnn"].headers)
    theirs = [flag for folder in folders for flag in ("-isystem", folder)]
    ours = [f"-I{tvm_ffi.libinfo.find_include_path()}", f"-I{tvm_ffi.libinfo.find_dlpack_include_path()}"]
    flags = ["-std=c++17", "-O0", "-fPIC", "-Wall", "-Wextra", "-Werror", *ours, *theirs]
    built = tmp_path / "cudnn.o"
    subprocess.run(["c++", *flags, "-c", str(source), "-o", str(built)], check=True, timeout=240)
    symbols = subprocess.run(["nm", "-u", str(built)], check=True, capture_output=True, text=True).stdout.split()
    assert [name for name in symbols if name.startswith(("cuda", "cudnn", "cu", "nvrtc"))] == []
