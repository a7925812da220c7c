"""CUDA source through NVRTC as TVM calls it, with what TVM throws away: the PTX, and the assembler's report."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from unittest import mock

from collage.backends.cuda.exact_math import TOO_FEW_DIGITS
from collage.backends.cuda.headers import headers_found
from collage.backends.cuda.ptxas import KernelUsage, kernel_usages

#: Products on the tensor cores, as PTX spells them.
_TENSOR_CORES = re.compile(r"^\s*(?:@\S+\s+)?(?:wmma\.mma|mma\.sync|wgmma\.mma_async)", re.MULTILINE)


@dataclass(frozen=True)
class Compiled:
    """One source, compiled.

    Attributes
    ----------
    cubin
        The machine code.
    ptx, report
        What it was assembled from, and what `ptxas -v` said.
    """

    cubin: bytes
    ptx: str
    report: str

    @property
    def kernels(self) -> list[KernelUsage]:
        return kernel_usages(self.report)

    @property
    def tensor_core_instructions(self) -> int:
        return len(_TENSOR_CORES.findall(self.ptx))

    @property
    def imprecise(self) -> list[str]:
        """Instructions that have too few digits for float32."""
        return [name for name in TOO_FEW_DIGITS if name in self.ptx]


def compile_source(source: str, arch: str) -> Compiled:
    """Compile by NVRTC, which needs no device, with TVM's own options.

    Raises
    ------
    RuntimeError
        It does not compile; the message is NVRTC's log.
    """
    from cuda.bindings import nvrtc
    from tvm.support.nvcc import compile_cuda

    destroy = nvrtc.nvrtcDestroyProgram
    kept: dict[str, str] = {}

    def read_and_destroy(program: Any) -> Any:
        kept["ptx"] = _read(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)
        kept["report"] = _read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        return destroy(program)

    with mock.patch.object(nvrtc, "nvrtcDestroyProgram", read_and_destroy), headers_found():
        cubin = bytes(compile_cuda(source, "cubin", arch, compiler="nvrtc"))
    return Compiled(cubin, kept.get("ptx", ""), kept.get("report", ""))


def _read(size: Any, read: Any, program: Any) -> str:
    """A text of a compiled program; "" where it has none."""
    status, count = size(program)
    if int(status) != 0 or count == 0:
        return ""
    text = bytearray(count)
    (status,) = read(program, text)
    return bytes(text).rstrip(b"\0").decode(errors="replace") if int(status) == 0 else ""
