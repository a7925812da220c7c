"""The verdict on a race: what ships against every rival, over all repetitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.referee.intervals import Interval, ratio_interval
from benchmarks.referee.race import Repetition

#: What ships loses when it is below so much of a rival's speed beyond doubt.
LOSS = 0.98
#: Largest error over the largest value of an output.
TOLERANCE = 1e-3
#: Rivals that are raced for comparison and decide nothing: their precision is the engine's choice.
BESIDE = frozenset({"openvino-default"})


@dataclass(frozen=True)
class Standing:
    """One contestant over all repetitions; latencies in seconds.

    Attributes
    ----------
    median, percentile
        Of the rounds' medians, and the 95th of all samples.
    speedup
        Latency of the best rival over its own, round by round.
    steadiness
        95th percentile of the best rival over its own.
    error
        The largest of all repetitions.
    """

    median: float
    percentile: float
    speedup: Interval
    steadiness: float
    error: float


@dataclass(frozen=True)
class Verdict:
    """Whether what ships holds its own.

    Attributes
    ----------
    best
        The fastest rival that computes the right numbers; "" when no rival runs.
    ships
        What is judged; None when nothing is.
    standings
        By contestant, the fastest first.
    repetitions
        Speed-up of what ships over the best rival, in the median of each repetition.
    lost
        The rivals that what ships is slower than: below `LOSS` of their speed, the whole interval of it.
    wrong
        Our models with errors above `TOLERANCE`, or that do not run.
    unavailable
        Contestant -> why it did not run.
    """

    best: str
    ships: str | None
    standings: Mapping[str, Standing]
    repetitions: Sequence[float]
    lost: Sequence[str]
    wrong: Sequence[str]
    unavailable: Mapping[str, str]

    @property
    def passed(self) -> bool:
        """What ships runs, is right, and is not beyond doubt slower than a rival."""
        return self.ships is None or not (self.lost or self.wrong)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {**asdict(self), "passed": self.passed}


def judge(repetitions: Sequence[Repetition], ours: Sequence[str], margin: float = LOSS) -> Verdict:
    """The verdict on `ours[0]`, what ships; the others of `ours` are models of Collage that are neither judged nor
    rivals. With no models of ours, the rivals are compared.

    Intervals hold for all rivals at once (Bonferroni).

    Raises
    ------
    ValueError
        No contestant ran in every repetition.
    """
    names = [n for n in repetitions[0].medians if all(n in repetition.medians for repetition in repetitions)]
    if not names:
        raise ValueError("no contestant ran in every repetition")
    rounds = {name: [repetition.medians[name] for repetition in repetitions] for name in names}
    samples = {name: np.concatenate([s for r in repetitions for s in r.samples[name]]) for name in names}
    error = {name: max(repetition.errors[name] for repetition in repetitions) for name in names}
    medians = {name: float(np.median(np.concatenate(rounds[name]))) for name in names}
    percentiles = {name: float(np.quantile(samples[name], 0.95)) for name in names}
    rivals = [n for n in names if n not in ours and n not in BESIDE and error[n] <= TOLERANCE]
    best = min(rivals or names, key=medians.__getitem__)
    ships = ours[0] if ours else None
    confidence = 1.0 - 0.05 / max(1, len(rivals))
    lost, each = [], []
    if ships in names:
        against = {n: ratio_interval(rounds[n], rounds[ships], confidence) for n in rivals}
        lost = [n for n, found in against.items() if found.high < margin]
        each = [float(np.median(np.divide(a, b))) for a, b in zip(rounds[best], rounds[ships], strict=True)]
    return Verdict(
        best=best if rivals else "",
        ships=ships,
        standings={
            name: Standing(
                medians[name],
                percentiles[name],
                ratio_interval(rounds[best], rounds[name]),
                percentiles[best] / percentiles[name],
                error[name],
            )
            for name in sorted(names, key=medians.__getitem__)
        },
        repetitions=each,
        lost=lost,
        wrong=[n for n in ours if n not in names or error[n] > TOLERANCE],
        unavailable={name: reason for r in repetitions for name, reason in r.unavailable.items()},
    )
