"""The CUTLASS backend on host memory: its kernels are compiled by the host's compiler from plain loops, everything else
(patterns, blob, choice, runner, virtual machine, export) is what runs on a device.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import emulated

from collage.backends.cuda.cutlass import build as cutlass_build
from collage.backends.cuda.cutlass.backend import CutlassBackend
from collage.backends.cuda.cutlass.kernels import Kernel
from collage.runtime.cuda.cutlass.libraries import KernelLibrary

_ELEMENTS = {"float32": "Float", "float16": "Half<5>", "bfloat16": "Half<8>"}


class EmulatedCutlass(CutlassBackend):
    """The backend with its kernels and its engine on the host; `slow` is part of the names of kernels that dawdle,
    `refusing` of those that refuse when they are launched.
    """

    device: ClassVar[str] = "cpu"
    slow: ClassVar[str] = "128x128"
    refusing: ClassVar[str] = "none"

    def compile(self, kernels: Sequence[Kernel]) -> list[KernelLibrary]:
        return [KernelLibrary(kernel.name, self._host_library(kernel.name)) for kernel in kernels]

    def _host_library(self, name: str) -> bytes:
        dtype = name.split("_")[2]
        traits = ("_column_" in name, name.startswith("conv"), name.endswith("streamk"))
        parts = ", ".join([_ELEMENTS[dtype], *(str(trait).lower() for trait in traits)])
        rounds = 0 if self.refusing in name else 50 if self.slow in name else 1
        made = self._folder() / f"host_{dtype}_{'_'.join(str(int(t)) for t in traits)}_{rounds}.so"
        if not made.exists():
            made.parent.mkdir(parents=True, exist_ok=True)
            source = made.with_suffix(".cc")
            source.write_text(
                f"#define ROUNDS {rounds}\n"
                '#include "cutlass_kernel.h"\n'
                f"using Run = collage_cutlass::HostKernel<collage_cutlass::{parts}>;\n"
                "COLLAGE_CUTLASS_LIBRARY(Run)\n"
            )
            folders = [f"-I{cutlass_build.TEMPLATES}", f"-I{emulated.HEADERS}"]
            flags = ["-std=c++17", "-O1", "-Wall", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden"]
            subprocess.run(["c++", *flags, *folders, str(source), "-o", str(made)], check=True)
        return Path(made).read_bytes()
