"""Ratios of latencies of one round, and intervals for them that hold where neighbouring rounds resemble each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_RESAMPLES = 4000


@dataclass(frozen=True)
class Interval:
    """A median of ratios with its confidence interval."""

    median: float
    low: float
    high: float


def ratio_interval(
    numerator: Sequence[float], denominator: Sequence[float], confidence: float = 0.95, seed: int = 0
) -> Interval:
    """The median over rounds of numerator / denominator, with an interval by the stationary block bootstrap.

    Parameters
    ----------
    numerator, denominator
        One latency per round each, in seconds; the rounds are the pairs.
    confidence
        Share of intervals that hold the true median.
    seed
        Of the resampling.

    Notes
    -----
    Politis and Romano, "The Stationary Bootstrap", 1994: blocks of geometric length, n^(1/3) on average, wrapped
    around the end.
    """
    ratios = np.asarray(numerator, dtype=float) / np.asarray(denominator, dtype=float)
    count = len(ratios)
    if count < 2:
        raise ValueError("an interval needs two rounds at least")
    rng = np.random.default_rng(seed)
    begins = rng.random((_RESAMPLES, count)) < 1.0 / max(1.0, count ** (1 / 3))
    begins[:, 0] = True
    starts = rng.integers(0, count, (_RESAMPLES, count))
    rows = np.empty((_RESAMPLES, count), dtype=int)
    position = starts[:, 0]
    for column in range(count):
        position = np.where(begins[:, column], starts[:, column], (position + 1) % count)
        rows[:, column] = position
    medians = np.median(ratios[rows], axis=1)
    tail = (1.0 - confidence) / 2
    low, high = np.quantile(medians, [tail, 1.0 - tail])
    return Interval(float(np.median(ratios)), float(low), float(high))
