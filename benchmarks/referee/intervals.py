"""Ratios of latencies of one round, and intervals for them that hold where neighbouring rounds resemble each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_Ratios = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A median of ratios with its confidence interval."""

    median: float
    low: float
    high: float


def ratio_interval(
    numerator: Sequence[Sequence[float]],
    denominator: Sequence[Sequence[float]],
    confidence: float = 0.95,
    seed: int = 0,
    resamples: int = 4000,
) -> Interval:
    """The median over rounds of numerator / denominator, with an interval by the bootstrap.

    Parameters
    ----------
    numerator, denominator
        Of each repetition one latency per round, in seconds; the rounds are the pairs.
    confidence
        Share of intervals that hold the true median.
    seed, resamples
        Of the resampling.

    Raises
    ------
    ValueError
        A repetition has fewer than two rounds, or there is none.

    Notes
    -----
    Rounds of a repetition are resampled in blocks of geometric length, n^(1/3) on average, wrapped around the end
    (Politis and Romano, "The Stationary Bootstrap", 1994). Of several repetitions as many are drawn with replacement
    first (Davison and Hinkley, "Bootstrap Methods and their Application", 1997, section 3.8): fresh processes differ
    from each other by more than their rounds do.
    """
    pairs = zip(numerator, denominator, strict=True)
    ratios = [np.asarray(a, dtype=float) / np.asarray(b, dtype=float) for a, b in pairs]
    if not ratios or min(map(len, ratios)) < 2:
        raise ValueError("an interval needs two rounds at least")
    rng = np.random.default_rng(seed)
    width, count = max(map(len, ratios)), len(ratios)
    drawn = np.full((resamples, count, width), np.nan)
    for slot in range(count):
        chosen = rng.integers(0, count, resamples)
        for repetition, values in enumerate(ratios):
            rows = np.flatnonzero(chosen == repetition)
            drawn[rows, slot, : len(values)] = values[_blocks(len(values), len(rows), rng)]
    medians = np.nanmedian(drawn.reshape(resamples, -1), axis=1)
    tail = (1.0 - confidence) / 2
    low, high = np.quantile(medians, [tail, 1.0 - tail])
    return Interval(float(np.median(np.concatenate(ratios))), float(low), float(high))


def _blocks(count: int, resamples: int, rng: np.random.Generator) -> npt.NDArray[np.int_]:
    """Positions of rounds, (resamples, count): runs of neighbours."""
    begins = rng.random((resamples, count)) < 1.0 / max(1.0, count ** (1 / 3))
    starts = rng.integers(0, count, (resamples, count))
    positions = np.empty((resamples, count), dtype=int)
    position = starts[:, 0]
    for column in range(count):
        position = np.where(begins[:, column], starts[:, column], (position + 1) % count) if column else position
        positions[:, column] = position
    return positions
