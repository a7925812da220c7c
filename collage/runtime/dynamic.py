"""DynamicModel: a network on an engine that takes any shape, for calls of shapes that were not tuned.

It is the user's ONNX file, run by the engine's own Python API, as OpenVINO and ONNX Runtime run it without Collage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from collage.errors import CompiledModelError
from collage.runtime import engines, forks
from collage.runtime.arguments import Argument
from collage.runtime.tensor_spec import TensorSpec

Run = Callable[[Mapping[str, np.ndarray]], Sequence[np.ndarray]]


class DynamicModel:
    """A network that is opened at its first call.

    Parameters
    ----------
    read
        Gives the ONNX model.
    facts
        "engine", a name of `ENGINES`; "threads"; "inputs", for each its name, dtype and extents, null where dynamic.

    Attributes
    ----------
    engine
        What runs it.
    """

    def __init__(self, read: Callable[[], bytes], facts: Mapping[str, Any]) -> None:
        self.engine = str(facts["engine"])
        self._read = read
        self._threads = int(facts["threads"])
        self._inputs = [(name, dtype, extents) for name, dtype, extents in facts["inputs"]]
        self._run: Run | None = None

    def refusal(self, shapes: Sequence[tuple[int, ...]]) -> str:
        """Why the network cannot have inputs of these shapes; "" when it can."""
        for (name, _, declared), shape in zip(self._inputs, shapes, strict=True):
            if declared is None:
                continue
            fits = zip(declared, shape, strict=False)
            if len(declared) != len(shape) or any(wanted not in (None, extent) for wanted, extent in fits):
                text = ", ".join("?" if extent is None else str(extent) for extent in declared)
                return f"input {name} has shape {shape}, and the model declares [{text}]"
        return ""

    def __call__(self, inputs: Sequence[Any], shapes: Sequence[tuple[int, ...]]) -> Any:
        """Run the network once on inputs of shapes that it can have; one call at a time.

        Raises
        ------
        ModelInputError
            A value has another dtype, or is no array at all.
        CompiledModelError
            The engine does not take the network, or not with these shapes.
        """
        arrays = {
            name: Argument(TensorSpec(name, shape, dtype), any_address=True).array(value)
            for (name, dtype, _), shape, value in zip(self._inputs, shapes, inputs, strict=True)
        }
        if self._run is None:
            engines.require([self.engine])
        try:
            if self._run is None:
                self._run = ENGINES[self.engine](self._read(), self._threads)
                forks.hold(self._run)
            results = self._run(arrays)
        except Exception as error:  # engines raise a dozen unrelated types, all direct children of Exception
            lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
            raise CompiledModelError(f"{self.engine} cannot run the network with these shapes: {lines[0]}") from error
        return results[0] if len(results) == 1 else tuple(results)


def _onnxruntime(model: bytes, threads: int) -> Run:
    import onnxruntime as ort

    from collage.runtime.engines.onnxruntime import session_options

    session = ort.InferenceSession(model, session_options(threads), providers=["CPUExecutionProvider"])
    return lambda arrays: session.run(None, dict(arrays))


def _openvino(model: bytes, threads: int) -> Run:
    import openvino as ov

    core = ov.Core()
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(core.read_model(model), "CPU", settings)

    def run(arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        request = compiled.create_infer_request()
        request.infer(dict(arrays), share_inputs=True)
        return [np.array(request.get_output_tensor(i).data) for i in range(len(compiled.outputs))]

    return run


#: Those that take any shape, the first one preferred: ONNX Runtime has all operators of ONNX, and int64.
ENGINES: Mapping[str, Callable[[bytes, int], Run]] = MappingProxyType(
    {"onnxruntime": _onnxruntime, "openvino": _openvino}
)
