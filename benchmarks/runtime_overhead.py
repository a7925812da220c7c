"""What the runtime adds to an engine: `python -m benchmarks.runtime_overhead MODEL.onnx [MORE.onnx ...] -o OUT.json`.

Each network is compiled as one partition of each engine. The engine's own Python API with bound buffers, a bound call
and a plain call through `collage.runtime` take turns, each in a process of its own; all others are stopped. Every
process gets the same NumPy arrays, aligned as NumPy has it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.referee.contestant import peak_memory

ENGINES = ("openvino", "onnxruntime")
#: Who is compared, of each engine: its own API comes first.
WAYS = ("its own API", "bound call", "plain call")
_RESAMPLES = 2000

Call = Callable[[], Any]


@dataclass
class Contestant:
    """A process that runs one way of calling; stopped unless it is asked."""

    way: str
    process: subprocess.Popen[str]
    facts: dict[str, float] = field(default_factory=dict)
    rounds: list[list[float]] = field(default_factory=list)

    @classmethod
    def start(cls, way: str, engine: str, file: Path, inputs: Path, threads: int) -> Contestant:
        command = [sys.executable, "-m", "benchmarks.runtime_overhead"]
        command += ["--contestant", way, engine, str(file), str(inputs), str(threads)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        contestant = cls(way, process)
        contestant.facts = contestant._answer()
        process.send_signal(signal.SIGSTOP)
        return contestant

    def sample(self, seconds: float) -> None:
        """Another round: calls for so long, after a warm-up of half of it."""
        assert self.process.stdin is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(f"{seconds}\n")
        self.rounds.append(self._answer()["samples"])
        self.process.send_signal(signal.SIGSTOP)

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.way} ended with status {self.process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def latencies(self) -> np.ndarray:
        """The median of each round, in seconds."""
        return np.array([np.median(samples) for samples in self.rounds])


def bound_in_openvino(file: str, inputs: Mapping[str, np.ndarray], threads: int) -> Call:
    """OpenVINO's request, with the settings that its documentation has for latency, in float32."""
    import openvino as ov

    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    request = ov.Core().compile_model(file, "CPU", settings).create_infer_request()
    for name, array in inputs.items():
        request.set_tensor(name, ov.Tensor(array, shared_memory=True))
    return request.infer  # type: ignore[no-any-return]


def bound_in_onnxruntime(file: str, inputs: Mapping[str, np.ndarray], threads: int) -> Call:
    """ONNX Runtime's IO binding, everything as it comes; where threads are as many as the processors,
    their number, too, because only then are workers bound to processors.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 0 if threads == len(os.sched_getaffinity(0)) else threads
    session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, array)
    for output in session.get_outputs():
        value = ort.OrtValue.ortvalue_from_numpy(np.empty(output.shape, np.float32))
        binding.bind_ortvalue_output(output.name, value)
    return lambda: session.run_with_iobinding(binding)


def bound(file: str, inputs: Mapping[str, np.ndarray]) -> Call:
    """The compiled model on the same buffers."""
    import collage.runtime

    return collage.runtime.load(file).bind(list(inputs.values()))


def plain(file: str, inputs: Mapping[str, np.ndarray]) -> Call:
    """An ordinary call of the compiled model."""
    import collage.runtime

    model, arrays = collage.runtime.load(file), list(inputs.values())
    return lambda: model(*arrays)


def contestant(way: str, engine: str, file: str, inputs_file: str, threads: int) -> None:
    """Load, and answer each line on standard input, seconds, with the latencies of calls that follow each other."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries may print what they like

    def answer(**values: Any) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    with np.load(inputs_file) as data:
        inputs = {name: data[name] for name in data.files}
    begin = time.perf_counter()
    if way == "its own API":
        native = {"openvino": bound_in_openvino, "onnxruntime": bound_in_onnxruntime}[engine]
        call = native(file, inputs, threads)
    else:
        call = (bound if way == "bound call" else plain)(file, inputs)
    call()
    answer(load_s=time.perf_counter() - begin, peak_mib=peak_memory() / 2**20)
    for line in sys.stdin:
        seconds = float(line)
        timed(call, seconds / 2)
        answer(samples=timed(call, seconds))


def timed(call: Call, seconds: float) -> list[float]:
    """Latencies for so long, three at least."""
    samples: list[float] = []
    until = time.perf_counter() + seconds
    while len(samples) < 3 or time.perf_counter() < until:
        begin = time.perf_counter()
        call()
        samples.append(time.perf_counter() - begin)
    return samples


def export(model: Path, engine: str, threads: int, folder: Path) -> Path:
    """The network as partitions of one engine, compiled.

    Raises
    ------
    RuntimeError
        The engine does not take all of it as one partition.
    """
    import collage

    plan = collage.partition(
        str(model), [engine], estimator="learned", records=folder / "records.db", confirm_end_to_end=False,
        threads=threads,
    )  # fmt: skip
    if len(plan.partitions) != 1:
        raise RuntimeError(f"{model.name}: {engine} takes it in {len(plan.partitions)} partitions")
    path = folder / f"{model.stem}-{engine}.so"
    plan.compile().export(path)
    return path


def race(model: Path, compiled: Path, engine: str, inputs: Path, options: argparse.Namespace) -> list[Contestant]:
    """Rounds in random order, one process awake at a time."""
    rng, contestants = random.Random(options.seed), []
    try:
        for way in WAYS:
            file = model if way == WAYS[0] else compiled
            contestants.append(Contestant.start(way, engine, file, inputs, options.threads))
        for _ in range(options.rounds):
            for one in rng.sample(contestants, len(contestants)):
                one.sample(options.seconds)
    finally:
        for one in contestants:
            one.close()
    return contestants


def difference(one: Contestant, other: Contestant, seed: int) -> tuple[float, float, float]:
    """Median over rounds of what one takes more, in seconds, with its 95% interval by the bootstrap."""
    more = one.latencies - other.latencies
    rng = np.random.default_rng(seed)
    medians = np.median(more[rng.integers(0, len(more), (_RESAMPLES, len(more)))], axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return float(np.median(more)), float(low), float(high)


def rows(engine: str, contestants: Sequence[Contestant], seed: int) -> list[dict[str, Any]]:
    """What is told of each."""
    result = []
    for one in contestants:
        more, low, high = (1e6 * value for value in difference(one, contestants[0], seed))
        result.append(
            {"engine": engine, "way": one.way, "latency_us": 1e6 * float(np.median(one.latencies)), "more_us": more,
             "interval_us": [low, high], **one.facts}
        )  # fmt: skip
    return result


def as_markdown(what: str, row: Mapping[str, Any]) -> str:
    """A line of the table."""
    low, high = row["interval_us"]
    more = f"{row['more_us']:.1f} [{low:.1f}, {high:.1f}]"
    cells = [what, row["way"], f"{row['latency_us'] / 1e3:.3f}", more, f"{row['load_s']:.2f}", f"{row['peak_mib']:.0f}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    if sys.argv[1:2] == ["--contestant"]:
        way, engine, file, inputs, threads = sys.argv[2:]
        contestant(way, engine, file, inputs, int(threads))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--seconds", type=float, default=0.2, help="of calls, per round")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--out", type=Path)
    options = parser.parse_args()
    import onnx

    from benchmarks.workloads import random_inputs

    report: dict[str, list[dict[str, Any]]] = {}
    print("| network, engine | way | latency, ms | more than its own API, µs | load, s | peak, MiB |")
    print("|---|---|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for model in options.models:
            np.savez(folder / "inputs.npz", **random_inputs(onnx.load(model), options.seed))  # type: ignore[arg-type]
            for engine in ENGINES:
                compiled = export(model, engine, options.threads, folder)
                found = rows(engine, race(model, compiled, engine, folder / "inputs.npz", options), options.seed)
                report.setdefault(model.stem, []).extend(found)
                for row in found:
                    print(as_markdown(f"{model.stem}, {engine}", row), flush=True)
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
