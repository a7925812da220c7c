"""Where NVRTC finds CUDA's headers: in a toolkit, or in the wheels, whose layout TVM does not know.

TVM looks for a toolkit by CUDA_PATH, by nvcc, and in /usr/local/cuda, and there for `include` and, under
`targets/<machine>/include`, for the C++ library's `cccl`. The wheels have `cccl` in the same `include`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from tvm.support import nvcc

from collage.errors import CompiledModelError
from collage.runtime.cuda import native

#: Header -> package that has it, of what TVM's kernels include.
_WHEELS = {
    "cuda_runtime.h": "nvidia-cuda-runtime",
    "crt/host_defines.h": "nvidia-cuda-crt",
    "cccl/cuda/std/cstdint": "nvidia-cuda-cccl",
}
_OPTIONS = "TVM_CUDA_NVRTC_EXTRA_OPTS"


def missing_headers() -> str:
    """What NVRTC lacks, and how to get it; "" when nothing is missing."""
    if _toolkit() is not None:
        return ""
    try:
        native.include_folders(_WHEELS)
    except CompiledModelError as error:
        return f"NVRTC needs CUDA's headers, of a toolkit (set CUDA_PATH to one) or of wheels: {error}"
    return ""


@contextmanager
def headers_found() -> Iterator[None]:
    """Let TVM find the headers of the wheels where there is no toolkit, by the environment that it reads."""
    if _toolkit() is not None or missing_headers():
        yield
        return
    folders = native.include_folders(_WHEELS)
    cccl = native.include_folders({"cccl/cuda/std/cstdint": ""})[0]
    given = os.environ.get(_OPTIONS, "")
    options = [*shlex.split(given), *(f"-I{folder}" for folder in (*folders, f"{cccl}/cccl"))]
    found = {"CUDA_PATH": str(Path(folders[0]).parent), _OPTIONS: shlex.join(options)}
    with mock.patch.dict(os.environ, found):
        yield


def _toolkit() -> Path | None:
    """The toolkit that TVM finds, if it has all that is included."""
    try:
        root = Path(nvcc.find_cuda_path())
    except RuntimeError:
        return None
    targets = list(root.glob("targets/*/include"))
    folders = [root / "include", *targets, *(folder / "cccl" for folder in targets)]
    wanted = ("cuda_runtime.h", "cuda/std/cstdint")
    return root if all(any((folder / name).is_file() for folder in folders) for name in wanted) else None
