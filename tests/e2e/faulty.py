"""Backends that fail in every way a backend can: they are ONNX Runtime, but for one thing that goes wrong."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
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
