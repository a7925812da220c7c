"""First contact with a device: every backend's kernels at a few shapes, against float64, before anything is tuned.

    python -m benchmarks.gpu.numerics --budget 300 [--backends cublas cudnn] [--cases attention convolution]

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
import itertools
import os
import pickle
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.gpu.cases import CASES
from benchmarks.gpu.isolated import Isolated
from benchmarks.workloads import random_inputs
from benchmarks.workloads.builder import FLOATS
from collage.measure.helper import end_with

if TYPE_CHECKING:
    from collage.backends.base import Backend
    from collage.cost.estimator import Workload
    from collage.measure.artifact import Artifact, Preparation
    from collage.measure.runner import Runner

#: Seconds for one candidate to compile, load or answer.
_TIMEOUT_S = 60.0


def reference(case: str, dtype: str, folder: Path) -> str:
    """Compute and keep the values of every node of a case; a line that says how far they are from float64."""
    import torch

    import collage
    from benchmarks.gpu.race import error_of
    from benchmarks.onnx_torch import tensor_of, to_torch
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
        outputs = exact(*(tensor_of(array).double() for array in inputs))
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
                result = artifact
                if not isinstance(artifact, str):
                    result = _measured(candidate.workload, artifact, runner, folder / f"{name}-{rank}-{number}", device)
                operators = (op.removeprefix("relax.").removeprefix("nn.") for op in candidate.workload.operators)
                print(f"{candidate.label}: {result}  [{','.join(operators)[:90]}]", flush=True)


def largest(backend: Backend, case: str, dtype: str, folder: Path, most: int) -> list[Examined]:
    """A backend's largest candidates of a case, each structure once; said where there are none."""
    import collage
    from collage.errors import CollageError
    from collage.graph.from_relax import read_graph
    from collage.measure.workloads import WorkloadFactory
    from collage.rules.base import PartitionSpec

    label = f"{backend.name}  {case} {dtype}"
    known_values = folder / f"{case}-{dtype}.pickle"
    if not known_values.exists():
        print(f"{label}: there is no reference", flush=True)
        return []
    values: Mapping[int, tuple[np.ndarray, ...]] = pickle.loads(known_values.read_bytes())

    def known(nodes: Sequence[int]) -> tuple[np.ndarray, ...]:
        return tuple(array for node in nodes for array in values[node])

    try:
        module = collage.load(CASES[case](dtype), device="cuda")
        graph = read_graph(module)
        rule = backend.partition_rule
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
    from collage.measure.artifact import Artifact, prepare, prewarm
    from collage.measure.builder import build_all

    with suppress(Exception):  # preparing the candidate at fault reports it
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
        result[number] = made if isinstance(made, Artifact) else f"NOT BUILT {made.reason[:300]}"
    return [result[number] for number in range(len(candidates))]


def _measured(workload: Workload, artifact: Artifact, runner: Runner, folder: Path, device: str) -> str:
    """Run and check one candidate, alone on the device."""
    from collage.arrays import write_arrays
    from collage.measure.job import Job
    from collage.measure.protocol import candidate_protocol
    from collage.runtime.device_info import describe_device

    if workload.samples is None:
        return "NOT RUN: there are no inputs for it"
    folder.mkdir()
    samples = workload.samples()
    arrays = (write_arrays(samples.inputs, folder, "input"), write_arrays(samples.outputs, folder, "expected"))
    with _turn(folder.parent / "turn"):
        measured = runner.measure(Job((artifact,), *arrays, candidate_protocol(describe_device(device)), 1, device))[0]
    if not measured.valid:
        return f"BAD {measured.reason[:300]}"
    return f"right, {np.median(measured.samples) * 1e6:.1f} us"


@contextmanager
def _turn(path: Path) -> Iterator[None]:
    """Held by one backend at a time; the end of a process releases it."""
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
    asked = parser.parse_args()
    end = time.monotonic() + asked.budget
    what = (asked.cases, asked.dtypes, asked.most)
    with tempfile.TemporaryDirectory(prefix="collage-numerics-") as temporary:
        folder = Path(temporary)
        context, mine = get_context("spawn"), (os.getpid(),)
        with ProcessPoolExecutor(os.cpu_count(), context, initializer=end_with, initargs=mine) as pool:
            asks = itertools.product(asked.cases, asked.dtypes)
            futures = {pool.submit(reference, *ask, folder): ask for ask in asks}
            for future in as_completed(futures):
                error, case = future.exception(), " ".join(futures[future])
                failed = f"reference  {case}: FAILED {type(error).__name__}: {error}"[:300]
                print(future.result() if error is None else failed, flush=True)
        backends = asked.backends or of_device(asked.device)
        with ExitStack() as stack:
            isolated = {name: Isolated(examine, name, asked.device, folder, *what) for name in backends}
            for process in isolated.values():
                stack.enter_context(closing(process))
            for name, process in isolated.items():
                try:
                    process.receive(end)
                except TimeoutError:
                    process.close()
                    print(f"{name}  stopped: the time is over", flush=True)
                except RuntimeError as error:
                    print(f"{name}  {error}", flush=True)


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
