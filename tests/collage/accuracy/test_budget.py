"""What a budget says of outputs: relative errors, drops of a metric, upper bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from collage.accuracy.budget import ErrorBudget, MetricBudget, Verdict, relative_error
from collage.errors import ModelInputError

_RIGHT = [np.array([3.0, 4.0], np.float32)]


def _sample() -> tuple[np.ndarray, ...]:
    return (np.zeros(1, np.float32),)


def test_the_largest_error_over_the_outputs_counts() -> None:
    right = [*_RIGHT, np.array([1.0], np.float32)]
    ours = [np.array([3.0, 4.5], np.float32), np.array([1.3], np.float32)]
    assert relative_error(ours, right) == pytest.approx(0.3)


def test_outputs_that_are_no_floats_differ_by_the_root_of_their_share() -> None:
    assert relative_error([np.array([1, 2, 3, 5])], [np.array([1, 2, 3, 4])]) == 0.5


@pytest.mark.parametrize(
    ("ours", "right", "error"),
    [
        ([np.inf, 1.0], [1.0, 1.0], math.inf),
        ([np.inf, 1.0], [np.inf, 1.0], 0.0),
        ([np.nan, 1.0], [1.0, 1.0], math.inf),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([0.1, 0.0], [0.0, 0.0], math.inf),
        ([], [], 0.0),
    ],
)
def test_what_is_not_finite_or_zero(ours: list[float], right: list[float], error: float) -> None:
    assert relative_error([np.array(ours, np.float32)], [np.array(right, np.float32)]) == error


def test_the_upper_bound_has_to_keep_the_budget() -> None:
    budget = ErrorBudget(0.12, [_sample()] * 4, [_RIGHT] * 4)
    outputs = [[np.array([3.0, 4.0 + 5.0 * error])] for error in (0.08, 0.12, 0.1, 0.1)]
    verdict = budget.verdict(outputs)
    assert verdict.value == pytest.approx(0.1, rel=1e-6) and verdict.samples == 4
    assert verdict.upper == pytest.approx(0.1 + 2.3534 * np.std([0.08, 0.12, 0.1, 0.1], ddof=1) / 2, rel=1e-4)
    assert budget.keeps(verdict) == (verdict.upper <= 0.12)
    assert not ErrorBudget(0.1, budget.samples, budget.references).keeps(verdict), "the mean alone would keep it"


def test_the_upper_bound_holds_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    held = [Verdict.of(list(rng.gamma(9.0, 0.01, 8))).upper >= 0.09 for _ in range(2000)]
    assert np.mean(held) > 0.91


def test_one_sample_has_no_interval() -> None:
    assert Verdict.of([0.02]) == Verdict(0.02, 0.02, 1)


def test_a_metric_drops_from_what_it_was_in_float32() -> None:
    def metric(outputs: object, label: object) -> float:
        return float(np.argmax(outputs[0]) == label)  # type: ignore[index]

    budget = MetricBudget.of(0.3, [_sample()] * 2, [1, 1], metric, [_RIGHT] * 2)
    kept = budget.verdict([_RIGHT, _RIGHT])
    assert kept.value == 0.0 and kept.upper == pytest.approx(1 - 0.05**0.5), "0.95 of pairs show what is that frequent"
    assert budget.verdict([_RIGHT, [np.array([4.0, 3.0])]]).value == 0.5
    assert not budget.keeps(budget.verdict([_RIGHT, [np.array([4.0, 3.0])]]))


@pytest.mark.parametrize("rate", [0.0, 0.002, 0.01, 0.05, 0.5])
def test_the_bound_of_a_drop_holds_however_rare_losses_are(rate: float) -> None:
    """Of 128 samples, each wrong in 20%; of 1 in 100, Student's t alone misses the loss whenever none is among them."""
    rng = np.random.default_rng(1)
    bounds = []
    for _ in range(500):
        right = rng.random(128) < 0.8
        values = np.where(right & (rng.random(128) < rate), 1.0, 0.0)
        bounds.append(Verdict.of_drops(list(values), float(np.mean(right))).upper)
    assert np.mean(np.array(bounds) >= 0.8 * rate) > 0.92


def _raising(outputs: object, label: object) -> float:
    raise KeyError("accuracy")


@pytest.mark.parametrize(
    ("metric", "says"),
    [(_raising, "the metric raised KeyError: 'accuracy'"), (lambda outputs, label: math.nan, "the metric gave nan")],
)
def test_a_metric_that_fails_is_one_clear_line(metric: object, says: str) -> None:
    with pytest.raises(ModelInputError, match=says) as caught:
        MetricBudget.of(0.1, [_sample()], [0], metric, [_RIGHT])  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
