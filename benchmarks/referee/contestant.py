"""One contestant in a process of its own: `python contestant.py KIND FILE INPUTS.npz THREADS`.

It answers requests, one JSON line each, on standard input with one JSON line each on standard output:

    {"run": "outputs.npz"}                -> {"names": [...]}            outputs of one call, saved
    {"inputs": "inputs.npz"}              -> {"inputs": [...]}           other values of the inputs, from now on
    {"time": seconds, "warm": seconds}    -> {"samples": [seconds...]}   calls for so long, after so long a warm-up

Its first line says that it is loaded: {"version", "load_s", "peak_bytes"}; or why not: {"error"}.

It is run as a file, so that PYTHONPATH alone decides which checkout's `collage.runtime` runs a compiled model.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from types import MappingProxyType
from typing import Any

import numpy as np

Inputs = Mapping[str, np.ndarray]
Call = Callable[[], Sequence[Any]]
_PR_SET_PDEATHSIG = 1


def openvino(file: str, inputs: Inputs, threads: int) -> tuple[Call, str]:
    """The file in OpenVINO, in float32, as its documentation has it for latency; buffers are bound once.

    Left to itself, OpenVINO computes in bfloat16 where the processor can: other numbers, at an error of 0.5% and more.
    `openvino-default` is that.
    """
    return _openvino(file, inputs, threads, {"INFERENCE_PRECISION_HINT": "f32"})


def openvino_default(file: str, inputs: Inputs, threads: int) -> tuple[Call, str]:
    """The same in the precision that OpenVINO chooses."""
    return _openvino(file, inputs, threads, {})


def openvino_bf16(file: str, inputs: Inputs, threads: int) -> tuple[Call, str]:
    """The same in bfloat16; of a quantised file, what it leaves in float32."""
    return _openvino(file, inputs, threads, {"INFERENCE_PRECISION_HINT": "bf16"})


def _openvino(file: str, inputs: Inputs, threads: int, more: Mapping[str, str]) -> tuple[Call, str]:
    import openvino as ov

    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, **more}
    request = ov.Core().compile_model(file, "CPU", settings).create_infer_request()
    for name, array in inputs.items():
        request.set_tensor(name, ov.Tensor(array, shared_memory=True))
    outputs = range(len(request.model_outputs))

    def call() -> Sequence[Any]:
        request.infer()
        return [request.get_output_tensor(i).data for i in outputs]

    return call, version("openvino")


def onnxruntime(file: str, inputs: Inputs, threads: int) -> tuple[Call, str]:
    """The file in ONNX Runtime, all optimisations on, everything else as it comes: where threads are as many as the
    processors, their number, too, because only then are workers bound to processors.
    """
    return _onnxruntime(file, inputs, threads, "ORT_ENABLE_ALL")


def onnxruntime_plain(file: str, inputs: Inputs, threads: int) -> tuple[Call, str]:
    """The same without optimisations: node by node, as the file has it.

    Of quantised networks the optimised numbers are others on processors without VNNI, where sums of products of eight
    bits saturate.
    """
    return _onnxruntime(file, inputs, threads, "ORT_DISABLE_ALL")


def _onnxruntime(file: str, inputs: Inputs, threads: int, level: str) -> tuple[Call, str]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 0 if threads == len(os.sched_getaffinity(0)) else threads
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    feed = dict(inputs)
    return lambda: session.run(None, feed), version("onnxruntime")


def torch_compile(file: str, inputs: Inputs, threads: int) -> tuple[Call, str]:
    """The network translated to PyTorch, compiled by its default compiler."""
    import onnx
    import torch

    from benchmarks.onnx_torch import to_torch

    torch.set_num_threads(threads)
    module = torch.compile(to_torch(onnx.load(file)))
    tensors = [torch.from_numpy(array) for array in inputs.values()]

    def call() -> Sequence[Any]:
        with torch.inference_mode():
            return module(*tensors)  # type: ignore[no-any-return]

    return call, version("torch")


def collage(file: str, inputs: Inputs, threads: int) -> tuple[Call, str]:
    """A compiled model, as it is deployed; it was compiled for its number of threads."""
    import collage.runtime

    model = collage.runtime.load(file)
    arrays = list(inputs.values())

    def call() -> Sequence[Any]:
        found = model(*arrays)
        return found if isinstance(found, tuple) else [found]

    return call, version("collage-tvm")


KINDS: Mapping[str, Callable[[str, Inputs, int], tuple[Call, str]]] = MappingProxyType(
    {
        "openvino": openvino,
        "openvino-default": openvino_default,
        "openvino-bf16": openvino_bf16,
        "onnxruntime": onnxruntime,
        "onnxruntime-plain": onnxruntime_plain,
        "torch.compile": torch_compile,
        "collage": collage,
    }
)


def main() -> None:
    """Load the contestant, call it once, and answer requests until standard input ends."""
    # A stopped process does not see that its parent is gone.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    kind, file, inputs_file, threads = sys.argv[1:5]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries may print what they like

    def answer(**values: Any) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    with np.load(inputs_file) as data:
        inputs = {name: data[name] for name in data.files}
    begin = time.perf_counter()
    try:
        call, library = KINDS[kind](file, inputs, int(threads))
        call()
    except Exception as error:  # whatever a library raises is the answer
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        answer(error=f"{type(error).__name__}: {lines[-1] if lines else ''}")
        return
    answer(version=library, load_s=time.perf_counter() - begin, peak_bytes=peak_memory())
    for line in sys.stdin:
        request = json.loads(line)
        if "run" in request:
            outputs = {f"output{i}": np.asarray(value) for i, value in enumerate(call())}
            np.savez(request["run"], **outputs)  # type: ignore[arg-type]
            answer(names=list(outputs))
        elif "inputs" in request:  # in place: buffers may be bound
            with np.load(request["inputs"]) as data:
                for name, array in inputs.items():
                    np.copyto(array, data[name])
            answer(inputs=list(inputs))
        else:
            answer(samples=timed(call, request["time"], request["warm"]))


def peak_memory() -> int:
    """Bytes that were resident at most. `getrusage` would tell of the parent, from whose memory the process began."""
    with open("/proc/self/status") as status:
        return int(status.read().partition("VmHWM:")[2].split()[0]) * 1024


def timed(call: Call, seconds: float, warm: float) -> list[float]:
    """Latencies of calls that follow each other for so long, three at least, after a warm-up of one at least."""
    until = time.perf_counter() + warm
    while True:
        call()
        if time.perf_counter() >= until:
            break
    samples: list[float] = []
    until = time.perf_counter() + seconds
    while len(samples) < 3 or time.perf_counter() < until:
        begin = time.perf_counter()
        call()
        samples.append(time.perf_counter() - begin)
    return samples


if __name__ == "__main__":
    main()
