"""The numbers of the cost models' table, on cases that can be worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.estimators.scores import Pairs, pairwise, score, spearman


def test_errors_are_relative_to_what_was_recorded() -> None:
    found = score([1.0, 1.05, 0.85, 3.0], [1.0, 1.0, 1.0, 2.0])
    assert found.count == 4
    assert found.mape == pytest.approx((0.0 + 0.05 + 0.15 + 0.5) / 4)
    assert found.median_ape == pytest.approx(0.1)
    assert (found.within_10, found.within_20) == (0.5, 0.75)


def test_one_bad_prediction_moves_the_mean_and_not_the_median() -> None:
    found = score([1.0] * 9 + [11.0], [1.0] * 10)
    assert (found.median_ape, found.mape) == (0.0, 1.0)


def test_coverage_is_the_share_of_recorded_latencies_inside_the_interval() -> None:
    found = score([1.0, 1.0, 1.0], [0.5, 1.0, 2.0], ([0.5, 1.1, 1.0], [0.6, 1.2, 3.0]))
    assert found.coverage == pytest.approx(2 / 3)
    assert math.isnan(score([1.0], [1.0]).coverage)


def test_rank_correlation_sees_order_only() -> None:
    assert spearman([1, 2, 3, 4], [1, 10, 100, 1000]) == pytest.approx(1.0)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1.0)
    assert spearman([1, 2, 2, 3], [1, 2, 2, 3]) == pytest.approx(1.0)
    assert spearman([1, 2, 3, 4], [2, 1, 4, 3]) == pytest.approx(0.6)
    assert math.isnan(spearman([1, 1, 1], [1, 2, 3]))


@pytest.mark.parametrize(("told", "seen"), [([], []), ([1.0], [1.0, 2.0]), ([1.0], [0.0])])
def test_what_cannot_be_scored_is_refused(told: list[float], seen: list[float]) -> None:
    with pytest.raises(ValueError):
        score(told, seen)


def test_the_winner_is_asked_where_backends_differ_by_more_than_the_margin() -> None:
    recorded = {("s", "a"): 1.00, ("s", "b"): 1.04, ("s", "c"): 2.0, ("t", "a"): 3.0, ("t", "b"): 1.0, ("u", "a"): 1.0}
    right = {("s", "a"): 5.0, ("s", "b"): 4.0, ("s", "c"): 6.0, ("t", "a"): 2.0, ("t", "b"): 1.0, ("u", "a"): 9.0}
    assert pairwise(right, recorded) == Pairs(3, 3)
    assert pairwise(recorded, recorded, margin=0.01) == Pairs(4, 4)
    wrong = {key: 1.0 / seconds for key, seconds in recorded.items()}
    assert pairwise(wrong, recorded).accuracy == 0.0


def test_a_tie_and_no_prediction_name_no_winner() -> None:
    recorded = {("s", "a"): 1.0, ("s", "b"): 2.0}
    assert pairwise(dict.fromkeys(recorded, 1.0), recorded) == Pairs(1, 0)
    assert pairwise(dict.fromkeys(recorded, np.nan), recorded) == Pairs(1, 0)
    assert math.isnan(Pairs(0, 0).accuracy)
    assert Pairs(3, 1) + Pairs(1, 1) == Pairs(4, 2)
