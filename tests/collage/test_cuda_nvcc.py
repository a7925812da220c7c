"""TVM's kernels go through NVIDIA's compiler, on a machine without a device.

TVM looks for the driver when it is loaded, and leaves kernels as source where there is none. A stand-in for the driver,
whose every function says that there is no device, makes it call nvcc at once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from collage.runtime.cuda.native import library_path

pytestmark = pytest.mark.cuda_build

#: How the image of a compiled kernel begins (fatbinary's magic number, 0xBA55ED50).
_IMAGE = b"\x50\xed\x55\xba"
#: What TVM's CUDA runtime asks of the driver.
_DRIVER = [
    *("cuDeviceGetName", "cuFuncSetAttribute", "cuGetErrorName", "cuGetErrorString", "cuLaunchKernelEx"),
    *("cuModuleGetFunction", "cuModuleLoadData", "cuModuleUnload", "cuTensorMapEncodeTiled"),
]
_NO_DEVICE = 100

_SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from test_cuda_lower import ARCH, CASES, one_partition
from collage.backends.cuda.native import TVMCudaBackend
from collage.compile.build import compile_partitioned

cases = {**CASES, "half": (((128, 256), (256, 128)), "float16", CASES["product"][2])}
for number, name in enumerate(("half", "convolution", "softmax", "layer norm", "sum of all", "product")):
    executable = compile_partitioned(one_partition(*cases[name]), [TVMCudaBackend(arch=ARCH)], 1)
    executable.export_library(f"{sys.argv[2]}/kernel{number}.so")
"""


def test_kernels_are_compiled(tmp_path: Path) -> None:
    assert shutil.which("nvcc"), "nvcc is not on the path"
    runtime = library_path("libcudart.so.13")
    assert runtime is not None, "libcudart.so.13 is in no wheel and no toolkit"
    source = "\n".join(f"int {name}(void) {{ return {_NO_DEVICE}; }}" for name in _DRIVER)
    (tmp_path / "cuda.c").write_text(source)
    stand_in = tmp_path / "libcuda.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", stand_in, tmp_path / "cuda.c"], check=True)
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": f"{tmp_path}:{runtime.parent}",
        "TVM_CUDA_COMPILE_MODE": "nvcc",
    }
    tests = str(Path(__file__).parent)
    command = [sys.executable, "-c", _SCRIPT, tests, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    built = sorted(tmp_path.glob("kernel*.so"))
    assert len(built) == 6
    for library in built:
        assert _IMAGE in library.read_bytes(), f"{library.name} holds source only"
