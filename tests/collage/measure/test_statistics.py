"""The median's confidence interval has the coverage that it states, whatever the distribution."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage.measure.statistics import Summary, converged, interval_rank, median_interval, paired_ratio

LATENCIES = st.lists(st.floats(1e-7, 1e3), min_size=1, max_size=150)


def exact_coverage(count: int, rank: int) -> float:
    return 1 - 2 * sum(math.comb(count, i) for i in range(rank)) / 2**count


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
def test_the_rank_is_the_largest_with_the_confidence(confidence: float) -> None:
    for count in range(1, 101):
        rank = interval_rank(count, confidence)
        assert 0 <= rank <= (count + 1) // 2
        if rank:
            assert exact_coverage(count, rank) >= confidence
        if 2 * (rank + 1) <= count:
            assert exact_coverage(count, rank + 1) < confidence


@pytest.mark.parametrize("count", [101, 150, 500, 1000, 5000])
def test_the_approximation_for_many_samples_keeps_the_confidence(count: int) -> None:
    rank = interval_rank(count)
    assert 0.945 <= exact_coverage(count, rank) <= 0.975


def test_ranks_agree_with_the_sign_test() -> None:
    """One more than the critical values of the two-sided sign test at 5%: the same binomial tail."""
    assert [interval_rank(n) for n in (5, 6, 9, 12, 20, 30, 50, 70)] == [0, 1, 2, 3, 6, 10, 18, 27]


@pytest.mark.parametrize("count", [6, 15, 40, 99, 140])
@pytest.mark.parametrize("shape", ["pareto", "lognormal", "bimodal"])
def test_coverage_on_heavy_right_tails(count: int, shape: str) -> None:
    random = np.random.default_rng(20211017)
    trials = 4000
    if shape == "pareto":
        data, truth = 1 + random.pareto(1.1, (trials, count)), 2 ** (1 / 1.1)
    elif shape == "lognormal":
        data, truth = random.lognormal(-7, 1.5, (trials, count)), math.exp(-7)
    else:  # one run in five is hit by a neighbour and takes five times as long
        hit = random.random((trials, count)) < 0.2
        base = random.uniform(1.0, 1.1, (trials, count))
        data, truth = np.where(hit, 5 * base, base), 1.0 + 0.1 * 0.5 / 0.8
    inside = 0
    for samples in data:
        _, low, high = median_interval(samples)
        inside += low <= truth <= high
    stated = exact_coverage(count, interval_rank(count))
    noise = 4 * math.sqrt(stated * (1 - stated) / trials)
    assert abs(inside / trials - stated) <= noise
    assert stated >= 0.945


@given(LATENCIES, st.randoms(use_true_random=False))
def test_order_does_not_matter(samples: list[float], random) -> None:
    shuffled = random.sample(samples, len(samples))
    assert median_interval(samples) == median_interval(shuffled)
    assert Summary.of(samples) == Summary.of(shuffled)


@given(LATENCIES, st.integers(-20, 20))
def test_a_change_of_unit_changes_nothing_else(samples: list[float], exponent: int) -> None:
    scale = 2.0**exponent
    assert median_interval([scale * s for s in samples]) == tuple(scale * v for v in median_interval(samples))
    assert converged(samples) == converged([scale * s for s in samples])


@given(st.lists(st.floats(1e-7, 1e3), min_size=6, max_size=150), st.floats(1.0, 1e6), st.data())
def test_slower_samples_never_lower_the_median_or_its_interval(samples: list[float], factor: float, data) -> None:
    slower = [s * factor if data.draw(st.booleans()) else s for s in samples]
    assert all(a <= b for a, b in zip(median_interval(samples), median_interval(slower), strict=True))


@given(LATENCIES)
def test_more_confidence_is_a_wider_interval_around_the_median(samples: list[float]) -> None:
    narrow, wide = median_interval(samples, 0.8), median_interval(samples, 0.99)
    assert wide[1] <= narrow[1] <= narrow[0] <= narrow[2] <= wide[2]
    assert narrow[0] == wide[0] == pytest.approx(np.median(samples))


def test_one_outlier_does_not_matter() -> None:
    quiet = [1.0 + 1e-4 * i for i in range(30)]
    assert converged(quiet)
    assert converged([*quiet[:-1], 1e6])
    assert Summary.of([*quiet[:-1], 1e6]).spread == Summary.of(quiet).spread


def test_too_few_samples_never_converge_and_still_have_a_finite_spread() -> None:
    assert not converged([1.0] * 5)
    assert converged([1.0] * 6)
    assert median_interval([1.0, 2.0]) == (1.5, -math.inf, math.inf)
    assert Summary.of([1.0, 2.0, 4.0]) == Summary(median=2.0, spread=1.5, count=3, minimum=1.0)
    assert Summary.of([3.0]) == Summary(median=3.0, spread=3.0, count=1, minimum=3.0)


def test_wide_samples_do_not_converge_until_there_are_many() -> None:
    random = np.random.default_rng(7)
    samples = random.lognormal(0.0, 0.1, 5000)
    assert not converged(samples[:30])
    assert converged(samples)
    assert not converged(samples, relative=1e-4)
    assert Summary.of(samples).relative_spread < Summary.of(samples[:30]).relative_spread


def test_pairs_cancel_what_slows_both() -> None:
    """The machine's speed wanders over a factor of three, and a 4% difference still shows."""
    random = np.random.default_rng(3)
    speed = np.exp(np.linspace(0, 1.1, 60)) * random.lognormal(0, 0.01, 60)
    a = 1.04 * speed * random.lognormal(0, 0.01, 60)
    b = speed * random.lognormal(0, 0.01, 60)
    ratio, low, high = paired_ratio(a, b)
    assert 1 < low <= ratio <= high < 1.08
    apart = median_interval(a)[1:], median_interval(b)[1:]
    assert apart[0][0] < apart[1][1]  # the separate intervals overlap: they could not have told
    back = paired_ratio(b, a)
    assert back == pytest.approx((1 / ratio, 1 / high, 1 / low), rel=1e-3)


@pytest.mark.parametrize("samples", [[], [1.0, math.nan], [math.inf], [[1.0, 2.0]]])
def test_no_samples_and_not_numbers_are_errors(samples: list[float]) -> None:
    with pytest.raises(ValueError):
        median_interval(samples)


def test_unpaired_samples_and_impossible_latencies_are_errors() -> None:
    with pytest.raises(ValueError, match="2 and 1"):
        paired_ratio([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="positive"):
        paired_ratio([1.0], [0.0])
    with pytest.raises(ValueError, match="confidence"):
        median_interval([1.0], confidence=1.0)
