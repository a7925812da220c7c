"""A race of whole networks in rounds: intervals of latency ratios, and which contestants leave when.

In each round every contestant that is still in the race runs alone for a slice; the median of the slice is its latency
of the round. A disturbance of a whole round cancels in the ratio of two contestants. The log-ratios that remain
resemble their neighbours, because a busy neighbour process stays for several rounds. They are modelled as an
autoregressive process of order 1 around mu. Its correlation cannot be told from few rounds, and point estimates of it
are biased downwards (M. H. Quenouille, *Biometrika* 43, 1956), so the posterior of mu is averaged over the correlation.
For a given correlation it is a Student t distribution around the generalised least squares estimate (A. Zellner and G.
C. Tiao, *Bayesian Analysis of the Regression Model with Autocorrelated Errors*, JASA 59, 1964). The correlation is a
property of the machine, so all contestants of a race together determine it.

A race may be stopped after every round. It is judged at looks at geometric distances; each has its share of `alpha` (K.
K. G. Lan and D. L. DeMets, *Discrete Sequential Boundaries for Clinical Trials*, Biometrika 70, 1983). The leader is
the best so far, a selection among all ordered pairs, so `alpha` is divided by their number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr  # type: ignore[import-untyped]

from collage.measure.statistics import TIE

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Verdict = Literal["out", "tie", "go on"]

#: Correlations of neighbouring rounds, and their weights before a round is seen: the simulation in the tests holds.
_CORRELATIONS = np.array([0.0, 0.3, 0.6, 0.8, 0.9])
_PRIOR = np.log(np.array([10, 3, 3, 3, 2]) / 21)
#: Rounds beyond so many median absolute deviations are moved there: a neighbour hit one slice.
_FAR = 8.0
#: Who takes so many times as long as the leader in every round leaves after `_HOPELESS_ROUNDS`, without a look.
HOPELESS, _HOPELESS_ROUNDS = 1.5, 2
_RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """A median of ratios with its confidence interval."""

    median: float
    low: float
    high: float


def ratio(a: Sequence[float], b: Sequence[float], *, alpha: float = 0.05) -> Interval:
    """How many times `a` takes as long as `b`, for a single look at the rounds that both took part in.

    Parameters
    ----------
    a, b
        Latencies of the rounds, in seconds; `a[i]` and `b[i]` are of one round. The shorter one left the race earlier.
    alpha
        Share of intervals that miss the true ratio.

    Raises
    ------
    ValueError
        No round in common, or a latency that is not finite and positive.
    """
    count = min(len(a), len(b))
    both = np.array([a[:count], b[:count]], dtype=float)
    if count == 0 or not np.all(np.isfinite(both) & (both > 0)):
        raise ValueError("a ratio is of rounds in common, of finite and positive latencies")
    series = np.log(both[0] / both[1])
    median = float(np.median(series))
    if count < 2:
        return Interval(math.exp(median), 0.0, math.inf)
    likelihood, mean, scale = _posterior(_near(series))
    weights = _weights(likelihood)

    def below(at: float) -> float:
        return float(weights @ stdtr(count - 1, (at - mean) / scale))

    low, high = _root(below, alpha / 2), _root(below, 1 - alpha / 2)
    return Interval(*map(math.exp, (median, min(low, median), max(high, median))))


def quantile_ratio(
    a: Sequence[Sequence[float]], b: Sequence[Sequence[float]], *, quantile: float = 0.95, alpha: float = 0.05
) -> Interval:
    """The ratio of a quantile of all samples of `a` to that of `b`; parameters as of `ratio`, but for what follows.

    Parameters
    ----------
    a, b
        The samples of each round, in seconds. Rounds are resampled as wholes, and the same ones of both.

    Notes
    -----
    D. N. Politis and J. P. Romano, *The Stationary Bootstrap*, JASA 89, 1994: blocks of rounds of geometric length,
    n^(1/3) on average, wrapped around the end.
    """
    count = min(len(a), len(b))
    if count < 2:
        raise ValueError("an interval needs two rounds at least")
    rng = np.random.default_rng(0)
    drawn, position = np.zeros((_RESAMPLES, count)), rng.integers(0, count, _RESAMPLES)
    for _ in range(count):
        drawn[np.arange(_RESAMPLES), position] += 1
        begins = rng.random(_RESAMPLES) < count ** (-1 / 3)
        position = np.where(begins, rng.integers(0, count, _RESAMPLES), (position + 1) % count)
    drawn[0] = 1  # the samples as they are
    found = _quantiles(a[:count], drawn, quantile) / _quantiles(b[:count], drawn, quantile)
    low, high = np.quantile(found, [alpha / 2, 1 - alpha / 2])
    return Interval(float(found[0]), float(min(low, found[0])), float(max(high, found[0])))


def verdicts(rounds: Mapping[str, Sequence[float]], *, alpha: float = 0.05, limit: int = 60) -> dict[str, Verdict]:
    """What is known of every contestant; to be asked after every round. The race is over when nobody has to go on.

    Parameters
    ----------
    rounds
        Name -> latencies of the rounds, in seconds, from the first round on. All who started are named, because
        `alpha` is divided among them. Those who have fewer rounds than others have left.
    alpha
        The chance that anyone who is as fast as the best is ever out.
    limit
        Rounds of the longest race.

    Returns
    -------
    dict
        Name -> "out": slower than the leader, or has left; "tie": within `TIE` of the leader, as the leader itself is;
        "go on": not known yet.
    """
    count = max(map(len, rounds.values()), default=0)
    found: dict[str, Verdict] = dict.fromkeys(rounds, "go on" if count == 0 else "out")
    names = [name for name, latencies in rounds.items() if len(latencies) == count > 0]
    if names:
        logs = np.log(np.array([rounds[name] for name in names], dtype=float))
        out, tie = decide(logs, np.ones(len(names), bool), contestants=len(rounds), alpha=alpha, limit=limit)
        found |= {n: "out" if o else "tie" if t else "go on" for n, o, t in zip(names, out, tie, strict=True)}
    return found


def eliminate(rounds: Mapping[str, Sequence[float]], *, alpha: float = 0.05, limit: int = 60) -> tuple[str, ...]:
    """Who leaves the race now; parameters as of `verdicts`."""
    count = max(map(len, rounds.values()), default=0)
    found = verdicts(rounds, alpha=alpha, limit=limit)
    return tuple(name for name, verdict in found.items() if verdict == "out" and len(rounds[name]) == count)


def looks(limit: int) -> tuple[int, ...]:
    """After how many rounds ratios are judged: from 5 on, each time a quarter more."""
    found = [5]
    while found[-1] < limit:
        found.append(min(limit, round(1.25 * found[-1])))
    return tuple(found)


def decide(logs: Array, racing: Mask, *, contestants: int, alpha: float, limit: int) -> tuple[Mask, Mask]:
    """Who is out and who ties with the leader, of any number of races at a time: `verdicts` of arrays.

    Parameters
    ----------
    logs
        Logarithms of latencies: (..., contestants, rounds).
    racing
        Who is still in the race: (..., contestants).
    contestants
        How many started.
    """
    schedule = looks(limit)
    count = max((look for look in schedule if look <= logs.shape[-1]), default=0)
    near = _near(logs[..., : count or None])
    leader = np.argmin(np.where(racing, near.mean(axis=-1), np.inf), axis=-1)[..., None, None]
    ratios = logs - np.take_along_axis(logs, leader, axis=-2)
    tie = np.arange(logs.shape[-2]) == leader[..., 0]
    out = ratios.min(axis=-1) > (math.log(HOPELESS) if logs.shape[-1] >= _HOPELESS_ROUNDS else math.inf)
    if count:
        deviations = near - near.mean(axis=-2, keepdims=True, where=racing[..., None])
        likelihood = np.where(racing[..., None], _posterior(deviations)[0], 0.0).sum(axis=-2)
        news = 1 - 1 / racing.sum(axis=-1, keepdims=True)  # deviations add up to 0: one of them is known
        weights = _weights(likelihood * news)[..., None, :]
        _, mean, scale = _posterior(_near(ratios[..., :count]))
        share = alpha / len(schedule)

        def below(at: float) -> Array:
            return np.asarray((weights * stdtr(count - 1, (at - mean) / scale)).sum(axis=-1))

        tie |= (below(-math.log1p(TIE)) < share) & (below(math.log1p(TIE)) > 1 - share)
        out |= below(0.0) < share / max(contestants * (contestants - 1), 1)
    return racing & out & ~tie, racing & tie


def _near(series: Array) -> Array:
    middle = np.median(series, axis=-1, keepdims=True)
    reach = _FAR * np.median(np.abs(series - middle), axis=-1, keepdims=True)
    return series if series.shape[-1] < 5 else np.clip(series, middle - reach, middle + reach)


def _posterior(series: Array) -> tuple[Array, Array, Array]:
    """By correlation, which is the last axis: log-likelihood, location and scale of mu (a t of rounds - 1 degrees)."""
    rho, count = _CORRELATIONS, series.shape[-1]
    first, later = np.sqrt(1 - rho**2), 1 - rho  # what mu weighs in the terms below, which are independent
    begin = first * series[..., :1]
    rest = series[..., None, 1:] - rho[:, None] * series[..., None, :-1]
    precision = first**2 + (count - 1) * later**2
    mean = (first * begin + later * rest.sum(axis=-1)) / precision
    squares = (begin - first * mean) ** 2 + ((rest - (later * mean)[..., None]) ** 2).sum(axis=-1)
    squares = np.maximum(squares, 1e-18)  # equal rounds
    likelihood = np.log(first) - 0.5 * np.log(precision) - 0.5 * (count - 1) * np.log(squares)
    return likelihood, mean, np.sqrt(squares / (count - 1) / precision)


def _weights(likelihood: Array) -> Array:
    logs = _PRIOR + likelihood
    weights = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def _root(below: Callable[[float], float], share: float) -> float:
    """Where a distribution function reaches a share, between e^-700 and e^700."""
    low, high = -700.0, 700.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) < share else (low, middle)
    return low


def _quantiles(rounds: Sequence[Sequence[float]], drawn: Array, quantile: float) -> Array:
    """The quantile of all samples, each round taken as often as it was drawn: (resamples, rounds) -> (resamples,)."""
    ordered = [np.sort(np.asarray(r, dtype=float)) for r in rounds]
    samples = np.sort(np.concatenate(ordered))
    wanted = quantile * (drawn @ [len(r) for r in ordered])
    low, high = np.zeros(len(drawn), int), np.full(len(drawn), len(samples) - 1)
    while np.any(low < high):  # bisected, because a cumulative sum of a million samples per resample takes gigabytes
        middle = (low + high) // 2
        seen = sum(drawn[:, i] * np.searchsorted(r, samples[middle], side="right") for i, r in enumerate(ordered))
        low, high = np.where(seen >= wanted, low, middle + 1), np.where(seen >= wanted, middle, high)
    return np.asarray(samples[low])
