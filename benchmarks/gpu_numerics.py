"""First contact with a device: every backend's kernels at a few shapes, against float64, before anything is tuned.

    python -m benchmarks.gpu_numerics --budget 300 [--backends cublas cudnn] [--cases attention convolution]

One line for each backend, case and candidate: its latency, or why there is none. Every backend has a process of its
own, and in it candidates are built and run in further processes, so that a crash or a hang costs one line. Backends
build at the same time and take turns on the device; of each, the largest candidate of every case comes before the
second largest of any, so that little time is enough to see all cases. Latencies, taken while others compile, are rough.
The reference is computed operator by operator in float32 on the processor; the first lines say how far it is from
PyTorch in float64.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from onnx import ModelProto

from benchmarks.workloads import random_inputs
from benchmarks.workloads.builder import FLOATS, GraphBuilder
from benchmarks.workloads.layers import batch_norm, classifier, conv, conv_transpose, dense, layer_norm, linear
from collage.measure.helper import command

if TYPE_CHECKING:
    from collage.backends.base import Backend
    from collage.estimate import Workload
    from collage.measure.artifact import Artifact, Preparation
    from collage.measure.runner import Runner

#: Seconds for one candidate to compile, load or answer.
_TIMEOUT_S = 60.0


def product(dtype: str) -> ModelProto:
    """A linear map with GELU, and one back with a residual, on 128 rows of 768."""
    b = GraphBuilder("product", 0, dtype)
    x = b.input("x", (1, 128, 768))
    wide = linear(b, x, (768, 3072))
    erf = b.op("Erf", b.op("Div", wide, b.constant(2.0**0.5)))
    gelu = b.op("Mul", b.op("Mul", wide, b.op("Add", erf, b.constant(1.0))), b.constant(0.5))
    b.output(b.op("Add", linear(b, gelu, (3072, 768), 2.0), x), "y", (1, 128, 768))
    return b.finish()


def odd_product(dtype: str) -> ModelProto:
    """Extents that no tile divides, relu and bias."""
    b = GraphBuilder("odd_product", 0, dtype)
    x = b.op("Relu", dense(b, b.input("x", (3, 77)), (77, 129)))
    b.output(dense(b, x, (129, 5), transposed=False), "y", (3, 5))
    return b.finish()


def attention(dtype: str) -> ModelProto:
    """Queries, keys and values of 12 heads: two batched products, a mask, softmax, transpositions."""
    b = GraphBuilder("attention", 0, dtype)
    x, mask = b.input("x", (2, 64, 768)), b.input("mask", (2, 1, 1, 64))
    parts = [b.op("Reshape", linear(b, x, (768, 768)), b.ints(2, 64, 12, 64)) for _ in range(3)]
    orders = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    query, key, value = (b.op("Transpose", part, perm=perm) for part, perm in zip(parts, orders, strict=True))
    scores = b.op("Add", b.op("Mul", b.op("MatMul", query, key), b.constant(0.125)), mask)
    mixed = b.op("Transpose", b.op("MatMul", b.op("Softmax", scores, axis=-1), value), perm=[0, 2, 1, 3])
    b.output(layer_norm(b, b.op("Reshape", mixed, b.ints(2, 64, 768)), 768, 1e-12), "y", (2, 64, 768))
    return b.finish()


def bottleneck(dtype: str, group: int = 1) -> ModelProto:
    """1x1, 3x3 and 1x1 convolutions with biases, relu, and a shortcut, on 56x56."""
    b = GraphBuilder("bottleneck", 0, dtype)
    x = b.input("x", (1, 256, 56, 56))
    y = b.op("Relu", batch_norm(b, conv(b, x, (256, 64), (1, 1)), 64))
    y = b.op("Relu", batch_norm(b, conv(b, y, (64, 64), (3, 3), group=group), 64))
    y = batch_norm(b, conv(b, y, (64, 256), (1, 1)), 256)
    b.output(b.op("Relu", b.op("Add", y, x)), "y", (1, 256, 56, 56))
    return b.finish()


def stem(dtype: str) -> ModelProto:
    """A strided 7x7 convolution of an image of three channels, both pools, the classifier, on two images."""
    b = GraphBuilder("stem", 0, dtype)
    x = b.op("Relu", batch_norm(b, conv(b, b.input("x", (2, 3, 65, 65)), (3, 24), (7, 7), 2), 24))
    x = b.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    x = b.op("AveragePool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1], count_include_pad=0)
    b.output(classifier(b, x, 24, 10), "y", (2, 10))
    return b.finish()


def separable(dtype: str) -> ModelProto:
    """Depthwise 5x5 with padding on one side, 1x1, joined with the shortcut."""
    b = GraphBuilder("separable", 0, dtype)
    x = b.input("x", (1, 44, 28, 28))
    y = conv(b, b.op("Relu", x), (44, 44), (5, 5), 1, (1, 1, 3, 3), group=44)
    y = batch_norm(b, conv(b, y, (44, 44), (1, 1)), 44)
    b.output(b.op("Concat", y, x, axis=1), "y", (1, 88, 28, 28))
    return b.finish()


def volume(dtype: str) -> ModelProto:
    """A 3-D convolution, strided, with bias and relu."""
    b = GraphBuilder("volume", 0, dtype)
    x = conv(b, b.input("x", (1, 16, 8, 28, 28)), (16, 32), (3, 3, 3), 2)
    b.output(b.op("Relu", batch_norm(b, x, 32)), "y", (1, 32, 4, 14, 14))
    return b.finish()


def upsampling(dtype: str) -> ModelProto:
    """Two transposed convolutions, relu and tanh."""
    b = GraphBuilder("upsampling", 0, dtype)
    x = conv_transpose(b, b.input("x", (1, 64, 8, 8)), (64, 32), 4, 2, 1)
    x = conv_transpose(b, b.op("Relu", batch_norm(b, x, 32)), (32, 3), 4, 2, 1)
    b.output(b.op("Tanh", x), "y", (1, 3, 32, 32))
    return b.finish()


CASES: Mapping[str, Callable[[str], ModelProto]] = MappingProxyType(
    {
        "product": product,
        "odd_product": odd_product,
        "attention": attention,
        "bottleneck": bottleneck,
        "grouped": lambda dtype: bottleneck(dtype, 32),
        "stem": stem,
        "separable": separable,
        "volume": volume,
        "upsampling": upsampling,
    }
)


def reference(case: str, dtype: str, folder: Path) -> str:
    """Compute and keep the values of every node of a case; a line that says how far they are from float64."""
    import torch

    import collage
    from benchmarks.gpu_race import error_of
    from benchmarks.onnx_torch import to_torch
    from collage.graph.from_relax import read_graph
    from collage.measure.reference import ReferenceRun

    torch.set_num_threads(1)
    model = CASES[case](dtype)
    inputs = list(random_inputs(model, seed=1).values())
    module = collage.load(model, device="cuda")
    graph = read_graph(module)
    run = ReferenceRun(module, graph, 1, inputs)
    indices = [*graph.inputs, *graph.coverable]
    values = {index: run.values([index]) for index in indices}
    exact = to_torch(model, torch.float64, literal=True)
    with torch.no_grad():
        outputs = exact(*(torch.from_numpy(array).double() for array in inputs))
    error = error_of(run.outputs, [tensor.numpy() for tensor in outputs])
    (folder / f"{case}-{dtype}.pickle").write_bytes(pickle.dumps(values))
    return f"reference  {case} {dtype}: off by {error:.2g} from float64"


@dataclass(frozen=True)
class Examined:
    """A candidate: its workload, and what its line begins with."""

    label: str
    workload: Workload


def examine(name: str, device: str, folder: Path, cases: Sequence[str], dtypes: Sequence[str], most: int) -> None:
    """One backend on all cases: one line for each of its largest candidates."""
    from collage import plugins
    from collage.measure.runner import Runner

    backend = plugins.load("backends", name)
    state = backend.availability()
    if not state.available:
        print(f"{name}  absent: {state.reason}", flush=True)
        return
    print(f"{name}  version {backend.version()}", flush=True)
    found = [largest(backend, case, dtype, folder, most) for case in cases for dtype in dtypes]
    with Runner(1, _TIMEOUT_S) as runner:
        for rank in range(most):
            begin = time.monotonic()
            ranked = [candidates[rank] for candidates in found if rank < len(candidates)]
            built = build(ranked, folder / f"{name}-{rank}")
            if ranked:
                print(f"{name}: {len(ranked)} candidates built in {time.monotonic() - begin:.1f} s", flush=True)
            for number, (candidate, artifact) in enumerate(zip(ranked, built, strict=True)):
                told = artifact
                if not isinstance(artifact, str):
                    told = _measured(candidate.workload, artifact, runner, folder / f"{name}-{rank}-{number}", device)
                operators = (op.removeprefix("relax.").removeprefix("nn.") for op in candidate.workload.operators)
                print(f"{candidate.label}: {told}  [{','.join(operators)[:90]}]", flush=True)


def largest(backend: Backend, case: str, dtype: str, folder: Path, most: int) -> list[Examined]:
    """A backend's largest candidates of a case, each structure once; said where there are none."""
    import collage
    from collage.errors import CollageError
    from collage.graph.from_relax import read_graph
    from collage.measure.workloads import WorkloadFactory
    from collage.rules.base import PartitionSpec

    label = f"{backend.name}  {case} {dtype}"
    values: Mapping[int, tuple[np.ndarray, ...]] = pickle.loads((folder / f"{case}-{dtype}.pickle").read_bytes())

    def known(nodes: Sequence[int]) -> tuple[np.ndarray, ...]:
        return tuple(array for node in nodes for array in values[node])

    try:
        module = collage.load(CASES[case](dtype), device="cuda")
        graph = read_graph(module)
        rule = backend.rule()
        factory = WorkloadFactory(module, graph, {backend.name: backend}, 1, known)
        workloads = dict.fromkeys(map(factory.of, rule.all_candidates(graph, PartitionSpec(rule, backend.name))))
    except CollageError as error:
        print(f"{label}: {str(error)[:300]}", flush=True)
        return []
    if not workloads:
        print(f"{label}: takes nothing", flush=True)
    return [Examined(label, w) for w in sorted(workloads, key=lambda w: -len(w.operators))[:most]]


def build(candidates: Sequence[Examined], folder: Path) -> list[Artifact | str]:
    """All candidates built side by side, or why they are not."""
    from collage.measure.artifact import prepare, prewarm
    from collage.measure.builder import build_all

    with suppress(Exception):  # what is wrong with which candidate is told when that is prepared
        prewarm(candidate.workload for candidate in candidates)
    result: dict[int, Artifact | str] = {}
    prepared: dict[int, Preparation] = {}
    for number, candidate in enumerate(candidates):
        try:
            prepared[number] = prepare(candidate.workload, folder / str(number))
        except Exception as error:  # a defect of one candidate is one line
            result[number] = f"REFUSED {type(error).__name__}: {str(error)[:300]}"
    built = build_all(list(prepared.values()), os.cpu_count() or 1, _TIMEOUT_S)
    for number, made in zip(prepared, built, strict=True):
        result[number] = f"NOT BUILT {made[:300]}" if isinstance(made, str) else made
    return [result[number] for number in range(len(candidates))]


def _measured(workload: Workload, artifact: Artifact, runner: Runner, folder: Path, device: str) -> str:
    """Run and check one candidate, alone on the device."""
    from collage.measure.artifact import write_arrays
    from collage.measure.job import Job
    from collage.measure.protocol import candidate_protocol

    if workload.samples is None:
        return "NOT RUN: there are no inputs for it"
    folder.mkdir()
    samples = workload.samples()
    arrays = (write_arrays(samples.inputs, folder, "input"), write_arrays(samples.outputs, folder, "expected"))
    with _turn(folder.parent / "turn"):
        measured = runner.measure(Job((artifact,), *arrays, candidate_protocol(device), 1, device))[0]
    if not measured.valid:
        return f"BAD {measured.reason[:300]}"
    return f"right, {np.median(measured.samples) * 1e6:.1f} us"


@contextmanager
def _turn(path: Path) -> Iterator[None]:
    """One backend's at a time; a process that ends gives it back."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--backends", nargs="*", help="names; all of the device when left out")
    parser.add_argument("--cases", nargs="*", choices=list(CASES), default=list(CASES))
    parser.add_argument("--dtypes", nargs="*", choices=FLOATS, default=list(FLOATS))
    parser.add_argument("--most", type=int, default=4, help="candidates of each case, largest first")
    parser.add_argument("--budget", type=float, default=400.0, help="seconds")
    parser.add_argument("--one", nargs=2, metavar=("BACKEND", "FOLDER"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        examine(asked.one[0], asked.device, Path(asked.one[1]), asked.cases, asked.dtypes, asked.most)
        return
    end = time.monotonic() + asked.budget
    with tempfile.TemporaryDirectory(prefix="collage-numerics-") as name:
        folder = Path(name)
        with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
            futures = [pool.submit(reference, case, dtype, folder) for case in asked.cases for dtype in asked.dtypes]
            for future in as_completed(futures):
                print(future.result(), flush=True)
        backends = asked.backends or of_device(asked.device)
        processes = {backend: _examine_apart(backend, folder, sys.argv[1:]) for backend in backends}
        for backend, process in processes.items():
            _wait(backend, process, end)


def _examine_apart(backend: str, folder: Path, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    """`examine` in a process of its own."""
    one = command("benchmarks.gpu_numerics", *arguments, "--one", backend, str(folder))
    return subprocess.Popen(one, start_new_session=True)


def _wait(backend: str, process: subprocess.Popen[bytes], end: float) -> None:
    """Until a backend has been examined, or its time is over."""
    try:
        status = process.wait(max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        print(f"{backend}  stopped: the time is over", flush=True)
        return
    if status != 0:
        print(f"{backend}  ended with status {status}", flush=True)


def of_device(device: str) -> list[str]:
    """Names of the backends of a device, whether they can be used here or not."""
    from collage import plugins
    from collage.errors import PluginError

    found = []
    for name in plugins.names("backends"):
        try:
            if plugins.load_class("backends", name).device == device:
                found.append(name)
        except PluginError as error:
            print(f"{name}  does not import: {error}", flush=True)
    return found


if __name__ == "__main__":
    main()
