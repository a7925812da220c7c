"""A race: repetitions of rounds in random order, one process awake at a time."""

from __future__ import annotations

import math
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil

from benchmarks.referee.process import Contestant, ContestantError, Entry
from benchmarks.workloads import random_inputs
from collage.measure.core_to_core import core_to_core
from collage.measure.patience import Patience
from collage.progress import Reporter

#: Contestants whose outputs the others' are compared with, where they run; the first of all otherwise.
_REFERENCE = "onnxruntime"
#: Samples of a round that are written, evenly spread; medians are of all.
_KEPT = 50


@dataclass(frozen=True)
class Terms:
    """How it is raced.

    Attributes
    ----------
    rounds
        Of each repetition.
    seconds
        Of calls, per contestant and round; half as long a warm-up comes before.
    seeds
        Of the inputs and the order, one for each repetition.
    threads
        Of each contestant.
    patience
        Seconds of a repetition that are spent on waiting for cores that are near each other, where calls are short.
    """

    rounds: int = 31
    seconds: float = 0.2
    seeds: Sequence[int] = (0, 1, 2)
    threads: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    patience: float = 120.0


@dataclass
class Repetition:
    """What one repetition measured, JSON-ready.

    Attributes
    ----------
    seed, began
        Of the inputs and the order; when, as ISO time in UTC.
    medians
        Contestant -> seconds, one per round.
    samples
        Contestant -> seconds of calls, some of each round.
    errors
        Contestant -> largest error over the largest value of an output.
    reference
        The contestant whose outputs were compared with.
    facts
        Contestant -> version, seconds to load and to call once, peak bytes.
    unavailable
        Contestant -> why it did not run.
    machine
        Load average, share of stolen time, and latency between cores over its least, in each round.
    set_aside
        Number of rounds of short calls that were run again, because their cores were far from each other.
    """

    seed: int
    began: str
    medians: dict[str, list[float]] = field(default_factory=dict)
    samples: dict[str, list[list[float]]] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    reference: str = ""
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)
    machine: list[dict[str, float]] = field(default_factory=list)
    set_aside: int = 0

    @contextmanager
    def leaving_out(self, name: str) -> Iterator[None]:
        """What fails inside leaves the contestant out of the repetition."""
        try:
            yield
        except ContestantError as error:
            self.unavailable[name] = str(error).removeprefix(f"{name}: ")
            for found in (self.medians, self.samples, self.errors, self.facts):
                found.pop(name, None)


def race(
    model: Path,
    entries: Sequence[Entry],
    terms: Terms,
    progress: Callable[[str], None] = lambda line: None,
    inputs: Mapping[str, np.ndarray] | None = None,
    reference: Entry | None = None,
) -> list[Repetition]:
    """Race them, each repetition with fresh processes; without rounds, outputs are compared and nothing else.

    A contestant that cannot be loaded, or ends in the middle, is left out of the repetition, which says why. `inputs`
    are by name, in the graph's order; None makes random ones for each repetition. Outputs are compared with those of
    `reference`, which is not raced; None is ONNX Runtime, where it is among the entries, or the first of them.

    Raises
    ------
    ValueError
        Inputs of the model cannot be made (a dynamic dimension, say).
    """
    proto = onnx.load(model, load_external_data=False)
    found = []
    for number, seed in enumerate(terms.seeds, 1):
        progress(f"{model.name}: repetition {number} of {len(terms.seeds)}")
        with tempfile.TemporaryDirectory(prefix="referee-") as folder, ExitStack() as stack:
            values = Path(folder) / "inputs.npz"
            np.savez(values, **(inputs or random_inputs(proto, seed)))  # type: ignore[arg-type]
            repetition = Repetition(seed, datetime.now(timezone.utc).isoformat(timespec="seconds"))
            contestants = []
            for entry in entries:
                with repetition.leaving_out(entry.name):
                    contestant = Contestant.start(entry, values, terms.threads)
                    stack.callback(contestant.close)
                    contestants.append(contestant)
                    repetition.facts[entry.name] = {"kind": entry.kind, "file": entry.file.name, **contestant.facts}
            expected = None
            if reference is not None:
                with repetition.leaving_out(reference.name):
                    expected = outputs_of(reference, values, terms.threads)
                    repetition.reference = reference.name
            _compare(contestants, Path(folder), repetition, expected)
            _rounds(contestants, terms, repetition)
        found.append(repetition)
    return found


def _rounds(contestants: Sequence[Contestant], terms: Terms, repetition: Repetition) -> None:
    rng, patience, fastest = random.Random(repetition.seed), Patience(terms.patience), math.inf
    while len(repetition.machine) < terms.rounds:
        contestants = [c for c in contestants if c.name not in repetition.unavailable]
        begin = patience.begin(fastest, Reporter())
        apart, before = core_to_core(), psutil.cpu_times()
        found: dict[str, list[float]] = {}
        for contestant in rng.sample(contestants, len(contestants)):
            with repetition.leaving_out(contestant.name):
                found[contestant.name] = contestant.ask(time=terms.seconds, warm=terms.seconds / 2)["samples"]
        steal = getattr(psutil.cpu_times(), "steal", 0.0) - getattr(before, "steal", 0.0)
        elapsed, apart = time.monotonic() - begin, max(apart, core_to_core())
        fastest = min((float(np.median(samples)) for samples in found.values() if samples), default=0.0)
        if patience.repeats(fastest, apart, begin):
            repetition.set_aside += 1
            continue
        for name, samples in found.items():
            if samples:
                repetition.medians.setdefault(name, []).append(float(np.median(samples)))
                repetition.samples.setdefault(name, []).append(thinned(samples))
        machine = {"load": os.getloadavg()[0], "steal": steal / elapsed / (os.cpu_count() or 1), "core_to_core": apart}
        repetition.machine.append({name: round(value, 4) for name, value in machine.items()})


def thinned(samples: Sequence[float]) -> list[float]:
    """At most `_KEPT` of them, evenly spread, in tenths of a microsecond."""
    chosen = np.unique(np.linspace(0, len(samples) - 1, _KEPT).round().astype(int))
    return [round(samples[i], 7) for i in chosen]


def outputs_of(entry: Entry, inputs: Path, threads: int) -> list[np.ndarray]:
    """Outputs of one call, in a process that ends after it; they are also written, beside `inputs`.

    Raises
    ------
    ContestantError
        It cannot be loaded or called.
    """
    path = inputs.with_name(f"{inputs.stem}.outputs.npz")
    contestant = Contestant.start(entry, inputs, threads)
    try:
        contestant.ask(run=str(path))
    finally:
        contestant.close()
    return _read(path)


def _read(path: Path) -> list[np.ndarray]:
    with np.load(path) as data:
        return [np.asarray(data[name], dtype=float) for name in data.files]


def _compare(
    contestants: Sequence[Contestant], folder: Path, repetition: Repetition, expected: list[np.ndarray] | None
) -> None:
    outputs = {}
    for number, contestant in enumerate(contestants):
        path = folder / f"{number}.npz"
        with repetition.leaving_out(contestant.name):
            contestant.ask(run=str(path))
            outputs[contestant.name] = _read(path)
    if outputs and expected is None:
        repetition.reference = _REFERENCE if _REFERENCE in outputs else next(iter(outputs))
        expected = outputs[repetition.reference]
    if expected is not None:
        repetition.errors = errors(outputs, expected)


def errors(outputs: Mapping[str, Sequence[np.ndarray]], expected: Sequence[np.ndarray]) -> dict[str, float]:
    """The largest error of each contestant, relative to the largest value of each output; infinite where an output has
    another shape or is missing, or is not a number where the expected one is.
    """
    return {name: _largest(found, expected) for name, found in outputs.items()}


def _largest(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    if [a.shape for a in found] != [a.shape for a in expected]:
        return float("inf")
    largest = 0.0
    for ours, right in zip(found, expected, strict=True):
        unequal = (ours != right) & ~(np.isnan(ours) & np.isnan(right))  # equal infinities have no difference
        scale = float(np.abs(right[np.isfinite(right)]).max(initial=0.0)) or 1.0
        error = float(np.abs(ours[unequal] - right[unequal]).max(initial=0.0)) / scale
        largest = max(largest, error if np.isfinite(error) else float("inf"))
    return largest
