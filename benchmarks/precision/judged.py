"""Errors of contestants on samples that nobody has seen, by their own outputs in a process of their own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.precision.error import Error, Outputs, error_of
from benchmarks.precision.samples import Sample
from benchmarks.referee.process import Contestant, ContestantError, Entry

#: Seconds of the calls that qualify a rival, after as long a warm-up.
_QUALIFYING_S = 0.5


@dataclass(frozen=True)
class Judged:
    """One contestant, alone.

    Attributes
    ----------
    error
        On the unseen samples; None where it does not run.
    seconds
        The median latency of a few calls, to choose who is raced; no result.
    reason
        Why it does not run.
    score
        Of a task, where there is one.
    """

    error: Error | None
    seconds: float = 0.0
    reason: str = ""
    score: float | None = None

    def keeps(self, budget: float) -> bool:
        """Whether its error is within the budget."""
        return self.error is not None and self.error.mean <= budget

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def run(entry: Entry, samples: Sequence[Sample], threads: int, timed: bool = False) -> tuple[list[list[Any]], float]:
    """Its outputs for each sample, and the median of a few calls' seconds (0 unless `timed`).

    Raises
    ------
    ContestantError
        It cannot be loaded or called.
    """
    with tempfile.TemporaryDirectory(prefix="precision-") as name:
        values, found = Path(name) / "inputs.npz", Path(name) / "outputs.npz"
        np.savez(values, **samples[0])  # type: ignore[arg-type]
        contestant = Contestant.start(entry, values, threads)
        outputs = []
        try:
            for sample in samples:
                np.savez(values, **sample)  # type: ignore[arg-type]
                contestant.ask(inputs=str(values))
                names = contestant.ask(run=str(found))["names"]
                with np.load(found) as data:
                    outputs.append([data[each] for each in names])
            calls = contestant.ask(time=_QUALIFYING_S, warm=_QUALIFYING_S)["samples"] if timed else [0.0]
        finally:
            contestant.close()
    return outputs, float(np.median(calls))


def judge_errors(
    entries: Iterable[Entry],
    samples: Sequence[Sample],
    expected: Sequence[Outputs],
    threads: int,
    score: Callable[[Sequence[Outputs]], float] | None = None,
) -> dict[str, Judged]:
    """Each of them, one after the other."""
    judged = {}
    for entry in entries:
        try:
            outputs, seconds = run(entry, samples, threads, timed=True)
        except ContestantError as error:
            judged[entry.name] = Judged(None, reason=str(error).removeprefix(f"{entry.name}: "))
            continue
        judged[entry.name] = Judged(
            error_of(outputs, expected), seconds, score=score(outputs) if score is not None else None
        )
    return judged


def finalists(judged: Mapping[str, Judged], keeps: Callable[[Judged], bool], margin: float = 1.3) -> list[str]:
    """Those that may be the fastest that keep the budget: within the margin of the fastest, three at most."""
    kept = sorted((name for name, found in judged.items() if keeps(found)), key=lambda name: judged[name].seconds)
    return [name for name in kept[:3] if judged[name].seconds <= margin * judged[kept[0]].seconds]
