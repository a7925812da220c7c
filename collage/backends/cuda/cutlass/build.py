"""Compiling CUTLASS kernels by nvcc: once per kernel and architecture, kept by content.

A kernel takes half a minute to compile and a megabyte to keep, and serves every product of its dtype, layout and
alignment; so a network needs a handful, compiled side by side, and the next network most likely none. The folder may be
made on another machine, with another patch of the same nvcc. What the assembler says of a kernel is kept beside it.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from collage.backends.cuda.cutlass.kernels import Kernel
from collage.backends.cuda.ptxas import complaint
from collage.errors import CodegenError, CompiledModelError
from collage.runtime.cuda import native
from collage.runtime.cuda.cutlass import libraries as own
from collage.runtime.cuda.cutlass.libraries import KernelLibrary

TEMPLATES = Path(own.__file__).with_name("kernels")
_HEADERS = {"cutlass/cutlass.h": "nvidia-cutlass"}
#: CUDA's runtime is looked up in the process that loads the kernel, which has it already. With assertions, which are
#: function calls, ptxas makes Hopper's tensor operations wait for one another.
_FLAGS = (
    *("-std=c++17", "-O3", "--expt-relaxed-constexpr", "-shared", "--cudart=none", "-DNDEBUG"),
    *("-Xcompiler", "-fPIC,-fvisibility=hidden", "-Xlinker", "-s"),
)

_LOG = logging.getLogger(__name__)


@cache
def find_nvcc() -> str | None:
    """The path of nvcc: on the PATH, of a toolkit, or of the wheel nvidia-cuda-nvcc; None when there is none."""
    toolkits = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    places = [os.path.join(root, "bin") for root in toolkits if root]
    wheels = find_spec("nvidia")
    for folder in wheels.submodule_search_locations or [] if wheels else []:
        places += [str(place) for place in sorted(Path(folder).glob("*/bin"), reverse=True)]
    return shutil.which("nvcc") or shutil.which("nvcc", path=os.pathsep.join(places))


def missing() -> str | None:
    """What is missing to compile kernels, and how to get it; None when nothing is."""
    if find_nvcc() is None:
        return "nvcc was not found: install the CUDA toolkit, set CUDA_HOME, or `pip install collage-tvm[cuda-build]`"
    try:
        _include_folder()
    except CompiledModelError as error:
        return str(error)
    return None


def cutlass_version() -> str:
    """Version of CUTLASS's headers."""
    text = (_include_folder() / "cutlass" / "version.h").read_text()
    return ".".join(re.findall(r"#define CUTLASS_(?:MAJOR|MINOR|PATCH) (\d+)", text))


@cache
def nvcc_version() -> str:
    """Version of the compiler."""
    text = subprocess.run([_nvcc(), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"V(\d+(?:\.\d+)+)", text)
    return found[1] if found else text.strip().splitlines()[-1]


def _nvcc() -> str:
    found = find_nvcc()
    if found is None:
        raise CodegenError(missing())
    return found


@cache
def _include_folder() -> Path:
    return Path(native.include_folders(_HEADERS)[0])


@dataclass(frozen=True)
class Compiler:
    """Compiles kernels for an architecture such as "sm_90a"; `folder` keeps them."""

    arch: str
    folder: Path

    def libraries(self, kernels: Sequence[Kernel]) -> list[KernelLibrary]:
        """The compiled kernels, without those that do not compile, which are logged.

        Raises
        ------
        CodegenError
            None compiles; the message has the compiler's first error.
        """
        absent = len(self.absent(kernels))
        _LOG.info("CUTLASS: %d kernels are in the cache, %d are compiled", len(kernels) - absent, absent)
        with ThreadPoolExecutor(max(1, min(len(kernels), os.cpu_count() or 1))) as pool:
            made = list(pool.map(self._library, kernels))
        found = [library for library in made if isinstance(library, KernelLibrary)]
        if not found:
            raise CodegenError(f"no CUTLASS kernel compiles: {made[0] if made else 'there is none for this partition'}")
        return found

    def absent(self, kernels: Sequence[Kernel]) -> list[Kernel]:
        """Those that the folder does not have, and that would be compiled."""
        return [kernel for kernel in kernels if not _made(self.file(kernel))]

    def report(self, kernel: Kernel) -> str:
        """What the compiler said of a kernel; "" where that is not known."""
        file = self.file(kernel).with_suffix(".log")
        return file.read_text() if file.exists() else ""

    def file(self, kernel: Kernel) -> Path:
        """Where the kernel's library is, once it is compiled."""
        return self.folder / f"{kernel.name}-{self._digest(kernel)}.so"

    def _library(self, kernel: Kernel) -> KernelLibrary | str:
        """The compiled kernel, or the reason why it does not compile. Either is found again."""
        code = self.file(kernel)
        refusal = code.with_suffix(".txt")
        self.folder.mkdir(parents=True, exist_ok=True)
        with _locked(code.with_suffix(".lock")):
            if not _made(code):
                self._compile(kernel, code, refusal)
        if not code.exists():
            _LOG.warning("a CUTLASS kernel is left out: %s", refusal.read_text())
        return KernelLibrary(kernel.name, code.read_bytes()) if code.exists() else refusal.read_text()

    def _digest(self, kernel: Kernel) -> str:
        digest = hashlib.sha256()
        for part in (*self.tools(), self.arch, kernel.source):
            digest.update(part.encode() + b"\0")
        for file in sorted(TEMPLATES.iterdir()):
            digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
        return digest.hexdigest()[:16]

    def tools(self) -> tuple[str, ...]:
        """Versions and flags that the machine code depends on; of the compiler, without its patch."""
        return (cutlass_version(), ".".join(nvcc_version().split(".")[:2]), *_FLAGS)

    def command(self, source: Path, target: Path) -> list[str]:
        """The compiler's command line."""
        number = self.arch.removeprefix("sm_")
        code = ["-gencode", f"arch=compute_{number},code=sm_{number}"]
        code += [f"-I{_include_folder()}", f"-I{TEMPLATES}"]
        return [_nvcc(), *_FLAGS, "-Xptxas=-v", *code, "-o", str(target), str(source)]

    def _compile(self, kernel: Kernel, code: Path, refusal: Path) -> None:
        source, made = code.with_suffix(".cu"), code.with_suffix(".part")
        source.write_text(kernel.source)
        done = subprocess.run(self.command(source, made), capture_output=True, text=True)
        report = done.stdout + done.stderr
        code.with_suffix(".log").write_text(report)
        if done.returncode == 0:
            if slow := complaint(report):
                _LOG.warning("the CUTLASS kernel %s is slower than it should be: %s", kernel.name, slow)
            made.replace(code)
        elif done.returncode > 0:  # a compiler that was ended by a signal says nothing about the kernel
            lines = [line for line in report.splitlines() if "error" in line]
            refusal.write_text(f"{kernel.name}: {lines[0].strip() if lines else f'status {done.returncode}'}"[:500])
        else:
            raise CodegenError(f"{kernel.name}: the compiler was ended by signal {-done.returncode}")


def _made(code: Path) -> bool:
    """Whether a library is there, or the reason why it cannot be."""
    return code.exists() or code.with_suffix(".txt").exists()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Held by one process at a time: two that need the same kernel compile it once."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
