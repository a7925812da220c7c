"""Races that may be stopped after every round: equal plans are rarely told apart, different ones soon."""

from __future__ import annotations

import math
import tracemalloc
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from scipy.signal import lfilter

from collage.measure.sequential import decide, eliminate, looks, quantile_ratio, ratio, verdicts
from collage.measure.statistics import TIE, paired_ratio

LIMIT, RACES = 60, 600
Array = npt.NDArray[np.float64]


def noise(rng: np.random.Generator, *shape: int, rho: float, sd: float) -> Array:
    """Stationary noise of rounds (the last axis); neighbours correlate by `rho`."""
    white = rng.standard_normal((*shape[:-1], 100 + shape[-1]))
    return np.asarray(sd * math.sqrt(1 - rho**2) * lfilter([1], [1, -rho], white)[..., 100:])


def logs_of(seed: int, contestants: int, rho: float, sd: float = 0.03, races: int = RACES) -> Array:
    """Log-latencies of equal contestants: noise of their own, noise of the round, drift of the machine."""
    rng = np.random.default_rng(seed)
    own = noise(rng, races, contestants, LIMIT, rho=rho, sd=sd)
    shared = noise(rng, races, 1, LIMIT, rho=rho, sd=3 * sd)
    return np.asarray(own + shared + np.linspace(0, 0.3, LIMIT))


def run(logs: Array) -> Array:
    """(races, contestants): after how many rounds each left; infinite for those who stayed."""
    racing = np.ones(logs.shape[:2], bool)
    left = np.full(logs.shape[:2], math.inf)
    for count in (2, 3, 4, *looks(LIMIT)):  # between looks nothing new is judged
        out, _ = decide(logs[..., :count], racing, contestants=logs.shape[1], alpha=0.05, limit=LIMIT)
        left[out], racing = count, racing & ~out
    return left


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("contestants", [2, 6])
def test_an_equal_plan_is_excluded_in_less_than_7_percent_of_races(contestants: int, rho: float) -> None:
    assert np.isfinite(run(logs_of(7, contestants, rho))).any(axis=1).mean() < 0.07


@pytest.mark.parametrize("rho", [0.0, 0.8])
def test_noise_may_be_three_times_as_loud(rho: float) -> None:
    assert np.isfinite(run(logs_of(7, 2, rho, sd=0.1))).any(axis=1).mean() < 0.07


@pytest.mark.parametrize(("rho", "share"), [(0.0, 0.1), (0.5, 0.4), (0.8, 0.7)])
def test_a_fixed_sample_interval_excludes_equality_far_too_often(rho: float, share: float) -> None:
    """The rule that this module replaces: stop after the first sample at which the interval of the median of pairwise
    ratios, from order statistics, excludes 1 or lies inside the tie.
    """
    wrong = 0
    for ratios in noise(np.random.default_rng(7), 150, LIMIT, rho=rho, sd=0.042):
        for count in range(6, LIMIT + 1):
            _, low, high = paired_ratio(np.exp(ratios[:count]), np.ones(count))
            if low > 1.0 or high < 1.0:
                wrong += 1
                break
            if low > 1.0 - TIE and high < 1.0 + TIE:
                break
    assert wrong / 150 > share


@pytest.mark.parametrize(
    ("slower", "rounds"), [(1.05, 20), (1.3, 6), (1.7, 2)], ids=["5%: 20 rounds", "30%: 6 rounds", "70%: 2 rounds"]
)
@pytest.mark.parametrize("contestants", [2, 6])
def test_differences_are_decided_soon(slower: float, rounds: int, contestants: int) -> None:
    """Ratios of two contestants' rounds have a standard deviation of 3%."""
    logs = logs_of(11, contestants, rho=0.0, sd=0.03 / math.sqrt(2), races=100)
    logs[:, 1:] += math.log(slower)
    left = run(logs)
    assert np.isinf(left[:, 0]).all()
    assert np.median(left[:, 1:]) <= rounds


def test_the_interval_of_one_look_holds() -> None:
    for rho in (0.0, 0.5, 0.8):
        inside = 0
        for series in noise(np.random.default_rng(3), 200, 31, rho=rho, sd=0.03):
            found = ratio(np.exp(series), np.ones(31))
            inside += found.low <= 1.0 <= found.high
        assert inside / 200 > 0.91


def test_the_interval_narrows_with_rounds_and_scales_with_the_ratio() -> None:
    series = np.exp(noise(np.random.default_rng(5), 60, rho=0.0, sd=0.02))
    widths = [ratio(series[:n], np.ones(n)).high - ratio(series[:n], np.ones(n)).low for n in (5, 20, 60)]
    assert all(a > b for a, b in pairwise(widths))
    once, twice = ratio(series, np.ones(60)), ratio(2 * series, np.ones(60))
    assert (twice.median, twice.low, twice.high) == pytest.approx((2 * once.median, 2 * once.low, 2 * once.high))
    assert 1 / once.low == pytest.approx(ratio(np.ones(60), series).high)


def test_one_slice_that_a_neighbour_hit_changes_little() -> None:
    series = np.exp(noise(np.random.default_rng(5), 20, rho=0.0, sd=0.01))
    before = ratio(series, np.ones(20))
    series[7] *= 4
    after = ratio(series, np.ones(20))
    assert abs(after.high - before.high) < 0.03


def test_few_or_equal_rounds_are_no_error() -> None:
    assert ratio([2.0], [1.0]).high == math.inf
    equal = ratio([2.0] * 5, [1.0] * 5)
    assert equal.low == pytest.approx(2.0) and equal.high == pytest.approx(2.0)
    assert verdicts({"a": [], "b": []}) == {"a": "go on", "b": "go on"}
    with pytest.raises(ValueError, match="in common"):
        ratio([], [1.0])
    with pytest.raises(ValueError, match="positive"):
        ratio([0.0], [1.0])


def test_the_leader_may_change_and_who_has_left_stays_out() -> None:
    rng = np.random.default_rng(2)
    logs = noise(rng, 3, LIMIT, rho=0.0, sd=0.005)
    logs[1] += 0.08
    rounds = {name: list(np.exp(row)) for name, row in zip("abc", logs, strict=True)}
    rounds["b"] = rounds["b"][:10]
    rounds["c"][:4] = [x * 0.98 for x in rounds["c"][:4]]
    assert verdicts(rounds) == {"a": "tie", "b": "out", "c": "tie"}
    assert eliminate(rounds) == ()
    assert eliminate({"slow": [1.0, 1.0], "fast": [0.5, 0.6]}) == ("slow",)


def test_a_race_ends() -> None:
    logs = logs_of(1, 3, rho=0.0, sd=0.01, races=1)[0]
    logs[2] += 0.1
    rounds: dict[str, list[float]] = {"a": [], "b": [], "c": []}
    racing = set(rounds)
    for i in range(LIMIT):
        for name in racing:
            rounds[name].append(math.exp(logs["abc".index(name), i]))
        racing -= set(eliminate(rounds))
        if "go on" not in verdicts(rounds).values():
            break
    assert racing == {"a", "b"} and i < LIMIT - 1 and len(rounds["c"]) < 20


def test_the_95th_percentile_is_compared_over_rounds() -> None:
    rng = np.random.default_rng(4)
    steady = [list(rng.uniform(1.0, 1.1, 40)) for _ in range(30)]
    hit = [[x * (2 if rng.random() < 0.1 else 1) for x in r] for r in steady]
    found = quantile_ratio(hit, steady)
    assert found.low > 1.5 and found.low <= found.median <= found.high
    same = quantile_ratio(steady, [list(rng.permutation(r)) for r in steady])
    assert same.low <= 1.0 <= same.high


def test_percentiles_of_calls_of_microseconds_take_little_memory() -> None:
    """A round of such a network is ten thousands of samples; with ties, as clocks give them."""
    rng = np.random.default_rng(5)
    samples = [[list(np.round(rng.uniform(1, 2, 4_000), 3)) for _ in range(12)] for _ in range(2)]
    tracemalloc.start()
    found = quantile_ratio(*samples)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6
    whole = [float(np.quantile(np.concatenate(s), 0.95, method="inverted_cdf")) for s in samples]
    assert found.median == whole[0] / whole[1]
