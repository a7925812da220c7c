"""What is done in a session on a borrowed GPU, in which order, and what is decided there (benchmarks/gpu/README.md).

Every task is a command with a limit of its own, so that none takes the time of those behind it. What a task finds is in
files; before the next one begins, `settings` reads them and decides: nvcc where NVRTC fails, without the backends that
are wrong, and, where a tune was not finished, a plan of what it had measured.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Backends that answer wrongly more often than this are left out, but those that compute what no other one can.
_MOST_WRONG = 0.5
_NEEDED = ("tvm-cuda", "tvm")
#: Of a rehearsal: enough to choose between.
_REHEARSED = ("--backends", "tvm", "onnxruntime")
_PYTHON = (sys.executable, "-m")
_LINE = re.compile(r"^(\S+)  \S+ float\d+: (right|BAD|NOT BUILT|REFUSED)")
_CRASH = re.compile(r"^(\S+)  the process ended with status")


@dataclass(frozen=True)
class Task:
    """One step of the agenda.

    Attributes
    ----------
    name
        Of its log, too.
    command
        Arguments; {state} stands for the session's folder, {device} for the device.
    most_s
        After so many seconds it is ended.
    least_s
        With fewer seconds left in the session it is not begun.
    chosen
        Whether `--backends` is appended where some are left out.
    """

    name: str
    command: tuple[str, ...]
    most_s: float
    least_s: float = 20.0
    chosen: bool = False


@dataclass(frozen=True)
class Settings:
    """What has been decided.

    Attributes
    ----------
    environment
        Variables of the tasks to come.
    backends
        Those that are used; none are named where all are.
    reasons
        Why, a line each.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    backends: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


def agenda(device: str = "cuda", quick: bool = False) -> list[Task]:
    """The tasks in their order; `quick` is the rehearsal, of small networks and short limits."""
    bert, resnet = ("tiny_bert", "tiny_resnet") if quick else ("bert_base", "resnet50")
    half, single = ("float32", "float32") if quick else ("float16", "float32")
    scale = 0.3 if quick else 1.0
    numerics = (*_PYTHON, "benchmarks.gpu.numerics", "--device", device)
    cases = ("--cases", "odd_product", "--most", "1", *_REHEARSED) if quick else ()
    tasks = [
        Task("contact", (*_PYTHON, "benchmarks.gpu.contact", "--device", device, "--out", "{state}"), 180),
        Task("numerics-half", (*numerics, *cases, "--dtypes", half, "--budget", str(115 * scale)), 125),
        Task("numerics-single", (*numerics, *cases, "--dtypes", single, "--budget", str(115 * scale)), 125),
    ]
    for network in (bert, resnet):
        tasks += _rows(network, half, device, _REHEARSED if quick else ())
    tasks.append(Task("memcheck", (*_PYTHON, "benchmarks.gpu.memcheck", "--device", device), 120, 30))
    if not quick:
        tasks += _rows(bert, single, device) + _rows(resnet, single, device)
        rest = (*_PYTHON, "benchmarks.gpu", "--state", "{state}/state", "--device", device, "--budget", "1500")
        tasks.append(Task("rest", rest, 1500, 90, chosen=True))
    return tasks


def _rows(network: str, dtype: str, device: str, backends: Sequence[str] = ()) -> list[Task]:
    """Tune a network, race it at once, the strongest peer first, and look where the time of both went."""
    run = (*_PYTHON, "benchmarks.gpu", "--state", "{state}/state", "--device", device, "--networks", network)
    one = (*run, "--dtypes", dtype, "--batches", "1", "--no-evolution", *backends)
    name = f"{network}-{dtype}"
    tune, race = (*one, "--kinds", "tune", "--budget", "230"), (*one, "--kinds", "rescue", "race", "--budget", "255")
    found = [Task(f"tune-{name}", tune, 240, 60, chosen=True), Task(f"race-{name}", race, 265, 60, chosen=True)]
    if device == "cuda":
        timeline = (*_PYTHON, "benchmarks.gpu.timeline", "--state", "{state}/state")
        found.append(Task(f"timeline-{name}", (*timeline, "--network", network, "--dtype", dtype), 60, 30))
    return found


def settings(state: Path) -> Settings:
    """What is decided by what the tasks found so far."""
    environment: dict[str, str] = {}
    reasons: list[str] = []
    facts = _read(state / "contact.json")
    if facts.get("nvrtc", {}).get("failed") and "failed" not in facts.get("nvcc", {"failed": "not tried"}):
        environment["TVM_CUDA_COMPILE_MODE"] = "nvcc"
        reasons.append(f"kernels are compiled by nvcc: NVRTC fails ({facts['nvrtc']['failed'][:200]})")
    available = [name for name, reason in facts.get("backends", {}).items() if not reason]
    text = "".join(path.read_text(errors="replace") for path in sorted(state.glob("log/numerics-*.log")))
    wrong = {name: why for name, why in wrong_backends(text).items() if name not in _NEEDED}
    reasons += [f"{name} is left out: {why}" for name, why in wrong.items() if name in available]
    left = tuple(name for name in available if name not in wrong)
    return Settings(environment, left if wrong and left else (), tuple(reasons))


def wrong_backends(text: str) -> dict[str, str]:
    """Backends that the lines of `benchmarks.gpu.numerics` speak against, and why."""
    results: dict[str, Counter[str]] = {}
    found: dict[str, str] = {}
    for line in text.splitlines():
        if match := _LINE.match(line):
            results.setdefault(match[1], Counter())[match[2]] += 1
        elif match := _CRASH.match(line):
            found[match[1]] = line[len(match[1]) :].strip()[:200]
    for name, counts in results.items():
        if sum(counts.values()) and 1 - counts["right"] / sum(counts.values()) > _MOST_WRONG:
            found[name] = f"{counts['right']} of {sum(counts.values())} candidates are right"
    return found


def command_of(task: Task, state: Path, decided: Settings) -> list[str]:
    """The arguments of a task, filled in."""
    command = [argument.replace("{state}", str(state)) for argument in task.command]
    return [*command, "--backends", *decided.backends] if task.chosen and decided.backends else command


def summary(state: Path, tasks: Sequence[Task]) -> str:
    """The session so far, as Markdown: each task, what was decided, and the rows of tunes and races."""
    lines = ["# Session", "", "| task | result | seconds |", "|---|---|---|"]
    done = _read(state / "tasks.json")
    for task in tasks:
        result = done.get(task.name, {})
        lines.append(f"| {task.name} | {result.get('result', 'not begun')} | {result.get('seconds', '')} |")
    lines += ["", *(f"- {reason}" for reason in settings(state).reasons), ""]
    rows = state / "state" / "rows.jsonl"
    if rows.exists():
        from benchmarks.gpu.ledger import summary as in_one_line

        for text in rows.read_text().splitlines():
            try:
                row = json.loads(text)
            except ValueError:
                continue
            lines.append(f"- {row['kind']} {row['network']} {row['dtype']}: {in_one_line(row)}")
    return "\n".join(lines) + "\n"


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
