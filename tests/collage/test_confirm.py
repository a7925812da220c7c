"""Which plan ships: ties, significance, failures. Latencies are made up, as seconds of runs by turns."""

from __future__ import annotations

import numpy as np
import pytest

from collage.confirm import SEARCHED, choose
from collage.errors import CollageError
from collage.measure.runner import Measurement


def _samples(seconds: float, drift: np.ndarray, noise: float = 0.002, seed: int = 0) -> Measurement:
    jitter = np.random.default_rng(seed).uniform(1 - noise, 1 + noise, len(drift))
    return Measurement(tuple(float(x) for x in seconds * drift * jitter), "time limit")


STEADY = np.ones(25)
#: A neighbour that makes everything up to four times slower for a while.
DRIFT = np.concatenate([np.ones(8), np.linspace(1, 4, 9), np.full(8, 2.0)])


def test_the_searched_plan_ships_when_it_is_the_fastest() -> None:
    chosen = choose({SEARCHED: _samples(0.9, STEADY), "a alone": _samples(1.0, STEADY, seed=1)})
    assert chosen.shipped == SEARCHED
    assert chosen.of("a alone").ratio is not None and chosen.of("a alone").ratio[0] == pytest.approx(
        1.0 / 0.9, rel=0.01
    )


def test_a_rival_that_is_faster_by_less_than_a_tie_does_not_ship() -> None:
    assert choose({SEARCHED: _samples(1.0, STEADY), "a alone": _samples(0.985, STEADY, seed=1)}).shipped == SEARCHED


@pytest.mark.parametrize("drift", [STEADY, DRIFT], ids=["steady", "drifting"])
def test_the_fastest_rival_ships_when_it_is_faster_even_on_a_machine_that_drifts(drift: np.ndarray) -> None:
    measured = {
        SEARCHED: _samples(1.0, drift),
        "a alone": _samples(0.95, drift, seed=1),
        "b alone": _samples(0.9, drift, seed=2),
    }
    assert choose(measured).shipped == "b alone"


def test_a_difference_inside_its_interval_does_not_ship() -> None:
    noisy = {SEARCHED: _samples(1.0, STEADY, 0.6, 3), "a alone": _samples(0.97, STEADY, 0.6, 4)}
    assert choose(noisy).shipped == SEARCHED


def test_a_searched_plan_that_fails_is_replaced_and_one_that_is_stopped_early_is_no_rival() -> None:
    failed = {
        SEARCHED: Measurement(reason="wrong result"),
        "a alone": _samples(2.0, STEADY),
        "b alone": _samples(1.0, STEADY),
    }
    assert choose(failed).shipped == "b alone"
    early = {SEARCHED: _samples(1.0, STEADY), "a alone": Measurement((0.5,), "stopped early")}
    assert choose(early).shipped == SEARCHED


def test_no_plan_at_all_is_an_error_with_the_reasons() -> None:
    with pytest.raises(CollageError, match="hangs"):
        choose({SEARCHED: Measurement(reason="hangs")})
