"""Rivals: engines that run the user's ONNX file through their own Python API, set for latency.

They take part in the contest and cannot ship. They compute in float32, as the plan does. OpenVINO's own default is
bfloat16 if the processor has it, at an error of half a percent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from collage.errors import CollageError
from collage.runtime.device_info import is_host

Call = Callable[[], Sequence[Any]]


@dataclass(frozen=True)
class Rival:
    """An engine and the file that it runs.

    Attributes
    ----------
    engine
        A name of `ENGINES`.
    path
        Path of the user's ONNX file.
    version
        Version of the engine's package.
    """

    engine: str
    path: Path
    version: str

    @property
    def name(self) -> str:
        """Its name among the contestants."""
        return f"{self.engine} by itself"

    @property
    def digest(self) -> str:
        """SHA-256 of the file's content; weights in files beside it are left out."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()


def rivals_of(path: Path | None, devices: Sequence[str]) -> list[Rival]:
    """The rivals that can run a file on one of the devices; none without a file, and none on accelerators alone."""
    if path is None or not any(map(is_host, devices)):
        return []
    found = ((engine, _version(engine)) for engine in ENGINES)
    return [Rival(engine, path, number) for engine, number in found if number]


def open_rival(engine: str, path: str, inputs: Sequence[np.ndarray], threads: int) -> Call:
    """A function that runs the file once on the inputs, in the file's order, and returns the outputs.

    Raises
    ------
    CollageError
        The file takes another number of inputs. Engines raise errors of their own, too.
    """
    return ENGINES[engine](path, inputs, threads)


def _openvino(path: str, inputs: Sequence[np.ndarray], threads: int) -> Call:
    import openvino as ov

    core = ov.Core()
    model = core.read_model(path)
    _require(len(model.inputs), inputs)
    if model.is_dynamic():
        model.reshape({port: list(array.shape) for port, array in zip(model.inputs, inputs, strict=True)})
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    for position, array in enumerate(inputs):
        request.set_input_tensor(position, ov.Tensor(array, shared_memory=True))
    outputs = range(len(request.model_outputs))

    def call() -> Sequence[Any]:
        request.infer()
        return [request.get_output_tensor(i).data for i in outputs]

    return call


def _onnxruntime(path: str, inputs: Sequence[np.ndarray], threads: int) -> Call:
    import onnxruntime as ort

    from collage.runtime.engines.onnxruntime import bind_workers

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    bind_workers(options, threads)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 4  # warnings are about the user's file, who has seen them
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    _require(len(names), inputs)
    feed = dict(zip(names, inputs, strict=True))
    return lambda: session.run(None, feed)


def _require(count: int, inputs: Sequence[np.ndarray]) -> None:
    if count != len(inputs):
        raise CollageError(f"the file takes {count} inputs, the network as Collage loads it {len(inputs)}")


def _version(engine: str) -> str:
    try:
        return version(engine)
    except PackageNotFoundError:
        return ""


ENGINES: Mapping[str, Callable[[str, Sequence[np.ndarray], int], Call]] = MappingProxyType(
    {"openvino": _openvino, "onnxruntime": _onnxruntime}
)
