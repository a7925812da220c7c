"""The referee on one network: `python -m benchmarks.referee MODEL.onnx COMPILED.so [MORE.so ...] -o REPORT.json`.

Prints a table and writes all samples. The exit status is 1 when every compiled model is slower than 0.98 of the best
rival beyond the interval, or gives other numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.referee.contestant import KINDS
from benchmarks.referee.intervals import Interval, ratio_interval
from benchmarks.workloads import random_inputs
from collage.runtime.device_info import describe_device

#: What ships may be slower than the best rival by so much before it counts as a loss.
LOSS = 0.98
#: Largest error over the largest value of an output.
_TOLERANCE = 1e-3


@dataclass
class Contestant:
    """A process that runs one contestant; stopped unless it is its turn."""

    name: str
    process: subprocess.Popen[str]
    facts: dict[str, Any] = field(default_factory=dict)
    rounds: list[list[float]] = field(default_factory=list)

    @classmethod
    def start(cls, name: str, kind: str, file: Path, inputs: Path, threads: int) -> Contestant:
        """Load it, call it once, and stop it.

        Raises
        ------
        RuntimeError
            It ends before it is loaded; its reason is on standard error.
        """
        command = [sys.executable, "-m", "benchmarks.referee.contestant", kind, str(file), str(inputs), str(threads)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment
        )
        contestant = cls(name, process)
        contestant.facts = contestant._answer()
        process.send_signal(signal.SIGSTOP)
        return contestant

    def ask(self, **request: Any) -> dict[str, Any]:
        """Wake it, put one request, and stop it again."""
        assert self.process.stdin is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self._answer()
        self.process.send_signal(signal.SIGSTOP)
        return answer

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with status {self.process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def latencies(self) -> list[float]:
        """The median of each round, in seconds."""
        return [float(np.median(samples)) for samples in self.rounds]


def race(contestants: list[Contestant], rounds: int, seconds: float, seed: int) -> list[dict[str, float]]:
    """Rounds in random order, one process awake at a time; the state of the machine in each."""
    rng = random.Random(seed)
    machine = []
    for _ in range(rounds):
        before, begin = psutil.cpu_times(), time.perf_counter()
        for contestant in rng.sample(contestants, len(contestants)):
            contestant.rounds.append(contestant.ask(time=seconds, warm=seconds / 2)["samples"])
        steal = getattr(psutil.cpu_times(), "steal", 0.0) - getattr(before, "steal", 0.0)
        machine.append({"load": os.getloadavg()[0], "steal": steal / (time.perf_counter() - begin)})
    return machine


def errors(contestants: list[Contestant], reference: Contestant, folder: Path) -> dict[str, float]:
    """Largest error of each, relative to the largest value of each of the reference's outputs."""
    outputs = {}
    for contestant in contestants:
        path = folder / f"{contestants.index(contestant)}.npz"
        contestant.ask(run=str(path))
        with np.load(path) as data:
            outputs[contestant.name] = [data[name].astype(float) for name in data.files]
    expected = outputs[reference.name]
    return {name: max(map(_error, found, expected)) for name, found in outputs.items()}


def _error(found: np.ndarray, expected: np.ndarray) -> float:
    scale = float(np.abs(expected).max(initial=0.0)) or 1.0
    return float(np.abs(found - expected).max(initial=0.0)) / scale


def judge(contestants: list[Contestant], wrong: dict[str, float], reference: str) -> dict[str, Any]:
    """Ratios of each contestant to the best rival, and the verdict."""
    rivals = [c for c in contestants if not c.name.startswith("collage")]
    ours = [c for c in contestants if c.name.startswith("collage")]
    best = min(rivals, key=lambda c: float(np.median(c.latencies)))
    speedups: dict[str, Interval] = {c.name: ratio_interval(best.latencies, c.latencies) for c in contestants}
    lost = [c.name for c in ours if speedups[c.name].high < LOSS]
    bad = [c.name for c in ours if wrong[c.name] > _TOLERANCE]
    return {
        "best rival": best.name,
        "outputs compared with": reference,
        "speedup over the best rival": {name: asdict(found) for name, found in speedups.items()},
        "lost": lost,
        "wrong": bad,
        "passed": not ours or (len(lost) < len(ours) and not bad),
    }


def table(contestants: list[Contestant], report: dict[str, Any]) -> Table:
    """Five columns: who, latency, its 95th percentile, speed-up over the best rival, error."""
    result = Table(box=None, pad_edge=False)
    for title in ("contestant", "median, ms", "95th percentile", "speed-up (95% interval)", "error"):
        result.add_column(title, justify="left" if title == "contestant" else "right")
    for contestant in sorted(contestants, key=lambda c: float(np.median(c.latencies))):
        samples = np.concatenate(contestant.rounds) * 1e3
        found = report["verdict"]["speedup over the best rival"][contestant.name]
        result.add_row(
            contestant.name,
            f"{np.median(contestant.latencies) * 1e3:.3f}",
            f"{np.quantile(samples, 0.95):.3f}",
            f"{found['median']:.3f} ({found['low']:.3f} to {found['high']:.3f})",
            f"{report['errors'][contestant.name]:.0e}",
        )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="the user's ONNX file, of static shapes")
    parser.add_argument("compiled", type=Path, nargs="*", help="models compiled by Collage")
    parser.add_argument("--rivals", default="openvino,onnxruntime", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--seconds", type=float, default=0.2, help="of calls, per contestant and round")
    parser.add_argument("--seed", type=int, default=0, help="of inputs and of the order")
    parser.add_argument("-o", "--out", type=Path)
    arguments = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="referee-") as name:
        folder = Path(name)
        np.savez(folder / "inputs.npz", **random_inputs(onnx.load(arguments.model), arguments.seed))  # type: ignore[arg-type]
        wanted = [(kind, kind, arguments.model) for kind in arguments.rivals.split(",") if kind]
        wanted += [(f"collage {path.name}", "collage", path) for path in arguments.compiled]
        contestants: list[Contestant] = []
        try:
            for title, kind, file in wanted:
                contestants.append(Contestant.start(title, kind, file, folder / "inputs.npz", arguments.threads))
            reference = next((c for c in contestants if c.name == "onnxruntime"), contestants[0])
            wrong = errors(contestants, reference, folder)
            machine = race(contestants, arguments.rounds, arguments.seconds, arguments.seed)
        finally:
            for contestant in contestants:
                contestant.close()
    report = {
        "model": arguments.model.name,
        "threads": arguments.threads,
        "seed": arguments.seed,
        "device": describe_device().as_dict(),
        "python": platform.python_version(),
        "commit": _commit(),
        "verdict": judge(contestants, wrong, reference.name),
        "errors": wrong,
        "machine": machine,
        "contestants": {c.name: {**c.facts, "rounds": c.rounds} for c in contestants},
    }
    console.print(table(contestants, report))
    console.print(
        f"{'passed' if report['verdict']['passed'] else 'lost'}: best rival {report['verdict']['best rival']}"
    )
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(0 if report["verdict"]["passed"] else 1)


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    main()
