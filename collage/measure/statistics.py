"""Robust statistics of latency samples: the median, its distribution-free confidence interval, and when to stop.

On a shared machine latencies have a heavy right tail (interrupts, neighbours), so means and standard deviations
mislead. The median with a confidence interval from order statistics assumes no distribution: the k-th smallest of n
independent samples lies below the true median with a probability that the binomial distribution B(n, 1/2) gives (H.
A. David and H. N. Nagaraja, *Order Statistics*, section 7.1; J.-Y. Le Boudec, *Performance Evaluation of Computer and
Communication Systems*, theorem 2.1). T. Hoefler and R. Belli recommend it for latencies (*Scientific Benchmarking of
Parallel Computing Systems*, SC'15). Samples that are not independent (drift, a throttling clock) make every such
interval too narrow: compare interleaved samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Values = Sequence[float] | npt.NDArray[np.floating]
#: Up to this many samples the binomial distribution is summed exactly; beyond it the normal approximation is as good.
_EXACT_UP_TO = 100


#: A difference below this share is a tie: the incumbent, or the searched plan, keeps its place.
TIE = 0.02


def interval_rank(count: int, confidence: float = 0.95) -> int:
    """The k for which the k-th smallest and k-th largest of `count` samples enclose the median with this confidence.

    The largest such k, so the narrowest interval; 0 when even the extremes do not enclose it often enough (fewer than
    6 samples for 95%).
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"a confidence lies between 0 and 1: {confidence}")
    if count > _EXACT_UP_TO:
        return math.floor(count / 2 - NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(count) / 2)
    # P(the k-th smallest lies above the median) = P(fewer than k samples below it) = P(B(n, 1/2) <= k - 1)
    rank, tail, limit = 0, 0, (1 - confidence) / 2
    while rank < (count + 1) // 2:
        tail += math.comb(count, rank)
        if tail > limit * 2**count:
            break
        rank += 1
    return rank


def median_interval(samples: Values, confidence: float = 0.95) -> tuple[float, float, float]:
    """Median and confidence interval: `(median, low, high)`, in the unit of the samples.

    Too few samples for the confidence give `(median, -inf, inf)`: no finite interval has it.

    Raises
    ------
    ValueError
        No samples, or one that is not finite.
    """
    ordered = np.sort(_checked(samples))
    rank = interval_rank(len(ordered), confidence)
    median = float(np.median(ordered))
    if rank == 0:
        return median, -math.inf, math.inf
    return median, float(ordered[rank - 1]), float(ordered[-rank])


@dataclass(frozen=True)
class Summary:
    """What is kept of a series of latency samples.

    Attributes
    ----------
    median
        In seconds.
    spread
        Half-width of the confidence interval of the median, in seconds. Always finite, so that it can be stored: with
        too few samples for an interval it is half their range, and for a single one the sample itself.
    count
        Number of samples.
    minimum
        The fastest sample, in seconds.
    """

    median: float
    spread: float
    count: int
    minimum: float

    @classmethod
    def of(cls, samples: Values, confidence: float = 0.95) -> Summary:
        """Summarise samples in seconds. Raises ValueError when there are none, or one is not finite."""
        values = _checked(samples)
        median, low, high = median_interval(values, confidence)
        if math.isinf(high):
            low, high = (float(values.min()), float(values.max())) if len(values) > 1 else (0.0, 2 * median)
        return cls(median, (high - low) / 2, len(values), float(values.min()))

    @property
    def relative_spread(self) -> float:
        """Spread over median; 0 when both are 0."""
        return self.spread / self.median if self.median else (math.inf if self.spread else 0.0)


def converged(samples: Values, relative: float = 0.01, confidence: float = 0.95) -> bool:
    """Whether the half-width of the median's confidence interval is at most the share `relative` of the median.

    Never true while there are too few samples for an interval. Ask after batches that grow, not after every sample:
    each look is another chance to stop on a lucky series.
    """
    if interval_rank(len(samples), confidence) == 0:
        return False
    median, low, high = median_interval(samples, confidence)
    return (high - low) / 2 <= relative * abs(median)


def paired_ratio(a: Values, b: Values, confidence: float = 0.95) -> tuple[float, float, float]:
    """How many times `a` takes as long as `b`: median of the pairwise ratios and its interval, `(ratio, low, high)`.

    `a[i]` and `b[i]` were taken one right after the other (A B A B): what slows both, such as a neighbour's load or the
    clock, cancels in their ratio. The difference is significant when the interval does not contain 1.

    Raises
    ------
    ValueError
        Different lengths, no samples, or one that is not finite and positive.
    """
    first, second = _checked(a), _checked(b)
    if len(first) != len(second):
        raise ValueError(f"paired samples come in pairs: {len(first)} and {len(second)}")
    if not (np.all(first > 0) and np.all(second > 0)):
        raise ValueError("latencies are positive")
    return median_interval(first / second, confidence)


def _checked(samples: Values) -> npt.NDArray[np.float64]:
    values = np.asarray(samples, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"samples are a non-empty series: shape {values.shape}")
    if not np.all(np.isfinite(values)):
        raise ValueError("a sample is not a finite number")
    return values
