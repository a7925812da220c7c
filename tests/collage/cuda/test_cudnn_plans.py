"""cuDNN's own heuristics are asked for plans, on an H100 that is described and not there: which of our graphs it takes.

The driver and cuBLASLt are hollow: their functions are there and fail. Nothing is run, so nothing is said of numbers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from collage.runtime.cuda.native import library_path

_DRIVER = [
    "cuCtxGetCurrent",
    "cuCtxGetLimit",
    "cuCtxPopCurrent",
    "cuCtxPushCurrent",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuKernelGetAttribute",
    "cuKernelGetFunction",
    "cuKernelSetAttribute",
    "cuLaunchCooperativeKernel",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuLibraryGetKernel",
    "cuLibraryLoadData",
    "cuLibraryLoadFromFile",
    "cuLibraryUnload",
    "cuLinkAddData",
    "cuLinkComplete",
    "cuLinkCreate",
    "cuLinkDestroy",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuOccupancyMaxPotentialClusterSize",
    "cuStreamGetCtx",
    "cuTensorMapEncodeIm2col",
    "cuTensorMapEncodeTiled",
    "cuGetProcAddress_v2",
    "cuDriverGetVersion",
]
_NO_DEVICE, _NOT_SUPPORTED = 100, 15
_H100 = {
    **{"deviceVer": 900, "driverVer": 13000, "multiProcessorCount": 132, "smCountOrigin": 0, "cudaDeviceId": 0},
    **{"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "warpSize": 32, "pciDeviceId": 0},
    **{"regsPerBlock": 65536, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024},
    **{"maxThreadsPerSM": 2048, "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448},
    **{"oversizedSharedMemoryPerBlock": 0, "reservedSharedMemoryPerBlock": 1024, "totalGlobalMem": 85017624576},
    **{"isTccDriver": 0, "supportCoopLaunch": 1, "smClockRateKHz": 1980000, "memClockRateKHz": 2619000},
    **{"memoryBusWidth": 5120, "l2CacheSize": 52428800, "deviceName": "NVIDIA H100 80GB HBM3"},
}
_SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from attention_cases import ATTENTIONS, Extents
from cudnn_cases import CASES
from product_cases import codegen_function, whole
from collage.backends.cuda.cudnn.backend import CudnnBackend
from collage.errors import CollageError
from collage.runtime.cuda.cudnn.engine import plans
backend, device, found = CudnnBackend(), json.loads(sys.argv[2]), {}
asked = [(name, case, dtype) for name, case in CASES.items() for dtype in ("float32", "float16", "bfloat16")]
asked += [(name, make(Extents(1, 12, 128, 64)), "float16") for name, make in ATTENTIONS.items()]  # BERT's
for name, case, dtype in asked:
    try:
        blob = backend.engine_blob(codegen_function(whole(case.module(dtype), backend, case.label)))
        found[f"{name}, {dtype}"] = plans(blob, device)
    except CollageError as error:
        found[f"{name}, {dtype}"] = str(error)
print(json.dumps(found))
"""


def _hollow(folder: Path, library: str, source: str) -> None:
    (folder / "hollow.c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / library, folder / "hollow.c"], check=True)


def _exported(library: Path) -> list[str]:
    printed = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    return [line.split()[2].partition("@")[0] for line in printed.splitlines() if " T " in line]


@pytest.mark.cuda_build
def test_cudnn_has_plans_for_every_kind_of_partition(tmp_path: Path) -> None:
    names = ("libcudart.so.13", "libnvrtc.so.13", "libcudnn.so.9", "libcublasLt.so.13")
    theirs = [library_path(name) for name in names]
    assert all(theirs), "the wheels of the extra cuda-build are installed"
    _hollow(tmp_path, "libcuda.so.1", "\n".join(f"int {name}(void) {{ return {_NO_DEVICE}; }}" for name in _DRIVER))
    created = "void **made) { *made = (void *)4096; return 0; }"
    functions = [name for name in _exported(Path(str(theirs[-1]))) if name.startswith("cublasLt")]
    fixed = {"cublasLtGetVersion": 130200, "cublasLtGetCudartVersion": 13000}
    lines = [f"unsigned long {name}(void) {{ return {value}; }}" for name, value in fixed.items()]
    for name in sorted(set(functions) - set(fixed)):
        lines.append(f"int {name}({created if name.endswith('Create') else f'void) {{ return {_NOT_SUPPORTED}; }}'}")
    _hollow(tmp_path, "libcublasLt.so.13", "\n".join(lines))
    folders = [str(tmp_path), *(str(path.parent) for path in theirs[:3] if path)]
    environment = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(folders)}
    command = [sys.executable, "-c", _SCRIPT, str(Path(__file__).parent), json.dumps(_H100)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    without = {name for name, forms in found.items() if not isinstance(forms, dict) or not _complete(forms)}
    routines = {name for name in found if name.startswith("softmax")}  # no graphs: cudnnSoftmaxForward
    assert without == routines, {name: found[name] for name in without ^ routines}


def _complete(forms: dict[str, list[list[str]]]) -> bool:
    """Whether some form has a plan for each of its stages."""
    return any(stages and all(stages) for stages in forms.values())
