"""The noise ceiling: what a perfect cost model would reach against the truth that models are scored against.

That truth is the robust mean of a few noisy measurements. Were the model's prediction of each candidate its true
latency, the truth would still deviate from it, by what the mean of so few measurements deviates. The bootstrap takes
the truth for the true latency and draws, of each candidate, as many of its measurements with replacement; their robust
mean is another truth, that might have been found. The perfect model's scores are those of the first against the second
(Efron and Tibshirani, "An Introduction to the Bootstrap", 1993). A mean of n draws from n values varies by (n - 1) / n
of what it varies between sessions, in variance, so deviations are widened by the root of n / (n - 1).

    python -m benchmarks.estimators.ceiling --records benchmarks/records/epyc-2-threads*.jsonl.gz
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.estimators.networks import Key, candidate_records
from benchmarks.estimators.scores import Pairs, Scores, pairwise, score
from estimators.cost_model.data.repeats import robust_mean
from estimators.cost_model.data.sessions import leveled


@dataclass(frozen=True)
class Measured:
    """A candidate and what was measured of it.

    Attributes
    ----------
    structure, backend
        What it is, and whose.
    seconds
        Of each session, brought to one level; two at least.
    """

    structure: str
    backend: str
    seconds: tuple[float, ...]

    @cached_property
    def truth(self) -> float:
        """What models are scored against."""
        return float(np.exp(robust_mean(np.log(self.seconds))))

    def redrawn(self, rng: np.random.Generator) -> float:
        """What might have been found in its place."""
        logs, count = np.log(self.seconds), len(self.seconds)
        deviation = robust_mean(logs[rng.integers(0, count, count)]) - np.log(self.truth)
        return float(self.truth * np.exp(deviation * np.sqrt(count / (count - 1))))


@dataclass(frozen=True)
class Ceiling:
    """A perfect model's scores.

    Attributes
    ----------
    scores
        Backend -> errors.
    pairs
        How often it names the faster backend.
    """

    scores: Mapping[str, Scores]
    pairs: Pairs


def ceiling(candidates: Sequence[Measured], seed: int = 0, margin: float = 0.05) -> Ceiling:
    """What a perfect model of these candidates would reach, in one draw.

    Parameters
    ----------
    margin
        Pairs that differ by less are not asked about (`pairwise`).
    """
    rng = np.random.default_rng(seed)
    perfect = [candidate.truth for candidate in candidates]
    found = [candidate.redrawn(rng) for candidate in candidates]
    rows: dict[str, list[int]] = defaultdict(list)
    for row, candidate in enumerate(candidates):
        rows[candidate.backend].append(row)
    names = [(candidate.structure, candidate.backend) for candidate in candidates]
    return Ceiling(
        {
            backend: score([perfect[i] for i in chosen], [found[i] for i in chosen])
            for backend, chosen in sorted(rows.items())
        },
        pairwise(dict(zip(names, perfect, strict=True)), dict(zip(names, found, strict=True)), margin),
    )


def repeated(sources: Sequence[Path], threads: int) -> list[Measured]:
    """The candidates that were measured twice or more, their measurements brought to one level."""
    pairs = [(key, record) for key, record in candidate_records(sources, threads) if record.seconds]
    found: dict[Key, list[float]] = defaultdict(list)
    for (key, _), record in zip(pairs, leveled(pairs), strict=True):
        found[key].append(record.seconds or 0.0)
    return [
        Measured(structure, backend, tuple(seconds))
        for (structure, backend, _), seconds in found.items()
        if len(seconds) > 1
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, nargs="+", required=True, help="logs of the same candidates")
    parser.add_argument("--threads", type=int, default=2, help="of the records to use")
    parser.add_argument("--draws", type=int, default=20, help="that scores are the means of")
    options = parser.parse_args(arguments)
    candidates = repeated(options.records, options.threads)
    if not candidates:
        parser.error("no candidate was measured twice with so many threads")
    draws = [ceiling(candidates, seed) for seed in range(options.draws)]
    table = Table("backend", "candidates", "measured", "median APE", "MAPE", "±10%", "±20%", "Spearman")
    for backend, first in draws[0].scores.items():
        each = [draw.scores[backend] for draw in draws]
        times = np.mean([len(candidate.seconds) for candidate in candidates if candidate.backend == backend])
        shares = [
            f"{np.mean([getattr(s, name) for s in each]):.1%}"
            for name in ("median_ape", "mape", "within_10", "within_20")
        ]
        table.add_row(
            backend, f"{first.count}", f"{times:.1f} times", *shares, f"{np.mean([s.spearman for s in each]):.3f}"
        )
    console = Console(width=120)
    console.print(table)
    accuracy = np.mean([draw.pairs.accuracy for draw in draws])
    console.print(f"faster of two backends that differ by more than 5%: {accuracy:.1%} of {draws[0].pairs.count}")


if __name__ == "__main__":
    main()
