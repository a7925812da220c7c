"""Backends that fail in every way a backend can, or whose machine does: they are ONNX Runtime, but for one thing that
goes wrong.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from collage.backends.onnx.onnxruntime import ONNXRuntimeBackend
from collage.errors import CodegenError
from collage.runtime.engines import onnxruntime

HERE = "tests.e2e.faulty"


class RaisesAtCodegen(ONNXRuntimeBackend):
    name: ClassVar[str] = "raises_at_codegen"
    engine: ClassVar[str] = "onnxruntime"

    def engine_blob(self, function: Any) -> bytes:
        raise CodegenError("this backend takes nothing at all")


class RaisesAtRun(ONNXRuntimeBackend):
    name: ClassVar[str] = "raises_at_run"
    engine: ClassVar[str] = f"{HERE}:create_raising"


class GivesWrongNumbers(ONNXRuntimeBackend):
    name: ClassVar[str] = "gives_wrong_numbers"
    engine: ClassVar[str] = f"{HERE}:create_wrong"


class SleepsForEver(ONNXRuntimeBackend):
    name: ClassVar[str] = "sleeps_for_ever"
    engine: ClassVar[str] = f"{HERE}:create_sleeping"


class Aborts(ONNXRuntimeBackend):
    name: ClassVar[str] = "aborts"
    engine: ClassVar[str] = f"{HERE}:create_aborting"


class AbortsAtLoad(ONNXRuntimeBackend):
    name: ClassVar[str] = "aborts_at_load"
    engine: ClassVar[str] = f"{HERE}:abort_at_load"


class Slow(ONNXRuntimeBackend):
    """Right, and slow enough to lose whatever else the machine does."""

    name: ClassVar[str] = "slow"
    engine: ClassVar[str] = f"{HERE}:create_slow"


class _Marked(ONNXRuntimeBackend):
    """Knows a file that tells whether something has happened already."""

    engine: ClassVar[str] = "onnxruntime"

    def __init__(self, marker: str) -> None:
        super().__init__()
        self.marker = marker


class KilledAtRun(_Marked):
    """The first timing process that runs it is killed."""

    name: ClassVar[str] = "killed_at_run"
    engine: ClassVar[str] = f"{HERE}:create_killed"

    def engine_options(self, threads: int) -> dict[str, Any]:
        return {**super().engine_options(threads), "marker": self.marker}


class KilledAtCompile(_Marked):
    """The first process that compiles it is killed."""

    name: ClassVar[str] = "killed_at_compile"

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _killed_once(self.marker)


class HangsAtCompile(_Marked):
    """In native code that no signal but one ends; where there is the file."""

    name: ClassVar[str] = "hangs_at_compile"

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP})
        while Path(self.marker).exists():
            ctypes.CDLL(None).pause()


def _killed_once(marker: str) -> None:
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)


def create_slow(blob: bytes, options: Mapping[str, Any]) -> Callable[..., None]:
    right = onnxruntime.create(blob, options)

    def run(*tensors: Any) -> None:
        time.sleep(0.005)
        right(*tensors)

    return run


def create_killed(blob: bytes, options: Mapping[str, Any]) -> Callable[..., None]:
    right = onnxruntime.create(blob, {name: value for name, value in options.items() if name != "marker"})

    def run(*tensors: Any) -> None:
        _killed_once(options["marker"])
        right(*tensors)

    return run


def create_raising(blob: bytes, options: Mapping[str, Any]) -> Callable[..., None]:
    def run(*tensors: Any) -> None:
        raise RuntimeError("the device is on fire")

    return run


def create_wrong(blob: bytes, options: Mapping[str, Any]) -> Callable[..., None]:
    right = onnxruntime.create(blob, options)

    def run(*tensors: Any) -> None:
        right(*tensors)
        last = np.from_dlpack(tensors[-1])
        last += 1  # what a kernel with a wrong epilogue would do

    return run


def create_sleeping(blob: bytes, options: Mapping[str, Any]) -> Callable[..., None]:
    def run(*tensors: Any) -> None:
        time.sleep(3600)

    return run


def create_aborting(blob: bytes, options: Mapping[str, Any]) -> Callable[..., None]:
    def run(*tensors: Any) -> None:
        os.abort()

    return run


def abort_at_load(blob: bytes, options: Mapping[str, Any]) -> Callable[..., None]:
    os.abort()
