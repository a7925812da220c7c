"""How good predicted latencies are: the numbers of the cost models' table, as functions of plain arrays."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata  # type: ignore[import-untyped,unused-ignore]

Latencies = Sequence[float] | npt.NDArray[np.float64]


@dataclass(frozen=True)
class Scores:
    """Errors of predicted latencies.

    Attributes
    ----------
    count
        Number of predictions.
    median_ape, mape
        Median and mean of the absolute percentage error |predicted / recorded - 1|, as a share.
    within_10, within_20
        Share of predictions with an error of at most 10%, 20%.
    spearman
        Rank correlation with what was recorded; NaN where either does not vary.
    coverage
        Share of recorded latencies inside the predicted interval; NaN without intervals.
    """

    count: int
    median_ape: float
    mape: float
    within_10: float
    within_20: float
    spearman: float
    coverage: float


def score(predicted: Latencies, recorded: Latencies, interval: tuple[Latencies, Latencies] | None = None) -> Scores:
    """The scores of predictions of `recorded`, in seconds; `interval` is (low, high) of each.

    Raises
    ------
    ValueError
        There are no predictions, or not as many as records, or a recorded latency is not positive.
    """
    given, seen = np.asarray(predicted, dtype=float), np.asarray(recorded, dtype=float)
    if given.shape != seen.shape or not seen.size:
        raise ValueError(f"{given.size} predictions cannot be scored against {seen.size} records")
    if not (seen > 0).all():
        raise ValueError("a recorded latency is positive")
    errors = np.abs(given / seen - 1.0)
    coverage = math.nan
    if interval is not None:
        low, high = (np.asarray(bound, dtype=float) for bound in interval)
        coverage = float(np.mean((low <= seen) & (seen <= high)))
    return Scores(
        count=int(seen.size),
        median_ape=float(np.median(errors)),
        mape=float(np.mean(errors)),
        within_10=float(np.mean(errors <= 0.10)),
        within_20=float(np.mean(errors <= 0.20)),
        spearman=spearman(given, seen),
        coverage=coverage,
    )


def spearman(a: Latencies, b: Latencies) -> float:
    """Rank correlation, ties sharing their rank; NaN where either side does not vary."""
    ranks = [rankdata(np.asarray(values, dtype=float)) for values in (a, b)]
    if any(np.ptp(r) == 0 for r in ranks):
        return math.nan
    return float(np.corrcoef(*ranks)[0, 1])


@dataclass(frozen=True)
class Pairs:
    """How often the faster of two backends was predicted, over pairs that differ by more than the margin."""

    count: int
    right: int

    @property
    def accuracy(self) -> float:
        return self.right / self.count if self.count else math.nan

    def __add__(self, other: Pairs) -> Pairs:
        return Pairs(self.count + other.count, self.right + other.right)


def pairwise(
    predicted: Mapping[tuple[str, str], float],
    recorded: Mapping[tuple[str, str], float],
    margin: float = 0.05,
) -> Pairs:
    """Which of two backends wins on a sub-graph.

    Parameters
    ----------
    predicted, recorded
        (sub-graph, backend) -> seconds; both have the same keys.
    margin
        Pairs whose slower one takes at most this share longer are nobody's win, and not asked about. A prediction that
        is a tie is wrong.
    """
    measured: dict[str, list[str]] = defaultdict(list)
    for sub_graph, backend in recorded:
        measured[sub_graph].append(backend)
    asked = right = 0
    for sub_graph, backends in measured.items():
        for pair in combinations(backends, 2):
            fast, slow = sorted(((sub_graph, backend) for backend in pair), key=recorded.__getitem__)
            if recorded[slow] > recorded[fast] * (1.0 + margin):
                asked += 1
                right += predicted[fast] < predicted[slow]
    return Pairs(asked, right)
