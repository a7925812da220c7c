"""What is a wrong result, in float32 and in precisions that the user granted."""

from __future__ import annotations

import numpy as np
import pytest

from collage.measure.check import wrong_numbers
from collage.measure.rounding import IN_INT8, QUANTISED

BF16 = 0.08


def probabilities(winners: np.ndarray) -> np.ndarray:
    """Of four classes, for each of the winners."""
    return np.eye(4, dtype=np.float32)[winners] * 0.9 + np.float32(0.025)


def in_one_place(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of `count` letters, and the same with another class for one of them."""
    winners = np.random.default_rng(0).integers(0, 4, count)
    other = winners.copy()
    other[count // 2] = (other[count // 2] + 1) % 4
    return probabilities(winners), probabilities(other)


@pytest.mark.parametrize("tolerance", [BF16, IN_INT8])
def test_one_letter_in_two_hundred_may_be_read_otherwise_in_a_granted_precision(tolerance: float) -> None:
    expected, ours = in_one_place(200)
    assert wrong_numbers([ours], [expected], tolerance) is None


@pytest.mark.parametrize("tolerance", [1e-4, QUANTISED])
def test_in_float32_it_may_not(tolerance: float) -> None:
    expected, ours = in_one_place(200)
    assert wrong_numbers([ours], [expected], tolerance) is not None


@pytest.mark.parametrize(("tolerance", "count"), [(BF16, 20), (IN_INT8, 4)])
def test_many_letters_may_not(tolerance: float, count: int) -> None:
    expected, ours = in_one_place(count)
    assert wrong_numbers([ours], [expected], tolerance) is not None


@pytest.mark.parametrize("tolerance", [BF16, IN_INT8])
@pytest.mark.parametrize("wrong", ["zeros", "other numbers", "half of it"])
def test_what_computes_something_else_is_wrong(tolerance: float, wrong: str) -> None:
    rng = np.random.default_rng(0)
    expected = rng.standard_normal(1000).astype(np.float32)
    ours = {
        "zeros": np.zeros_like(expected),
        "other numbers": rng.standard_normal(1000).astype(np.float32),
        "half of it": np.where(np.arange(1000) < 500, expected, 0).astype(np.float32),
    }[wrong]
    assert wrong_numbers([ours], [expected], tolerance) is not None


def test_a_mask_is_kept_in_a_granted_precision() -> None:
    expected, ours = in_one_place(200)
    lowest = np.finfo(np.float32).min
    expected[0, 0] = ours[0, 0] = lowest
    assert wrong_numbers([ours], [expected], IN_INT8) is None
    ours[0, 0] = 0.0
    assert wrong_numbers([ours], [expected], IN_INT8) is not None
