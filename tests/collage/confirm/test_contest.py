"""Which plan ships: ties, significance, failures. Latencies are made up, as seconds of interleaved runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from collage.confirm.contest import SEARCHED, UNTOUCHED, choose
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


def test_a_contestant_that_is_faster_by_less_than_a_tie_does_not_ship() -> None:
    assert choose({SEARCHED: _samples(1.0, STEADY), "a alone": _samples(0.985, STEADY, seed=1)}).shipped == SEARCHED


@pytest.mark.parametrize("drift", [STEADY, DRIFT], ids=["steady", "drifting"])
def test_the_fastest_contestant_ships_when_it_is_faster_even_on_a_machine_that_drifts(drift: np.ndarray) -> None:
    measured = {
        SEARCHED: _samples(1.0, drift),
        "a alone": _samples(0.95, drift, seed=1),
        "b alone": _samples(0.9, drift, seed=2),
    }
    assert choose(measured).shipped == "b alone"


def test_a_difference_inside_its_interval_does_not_ship() -> None:
    noisy = {SEARCHED: _samples(1.0, STEADY, 0.6, 3), "a alone": _samples(0.97, STEADY, 0.6, 4)}
    assert choose(noisy).shipped == SEARCHED


#: What one run is worth, where a measurement does not settle.
WAVERING = np.array((0.6, 1.0, 1.6) * 8)


@pytest.mark.parametrize(
    ("alone", "runs", "partitions", "ships"),
    [
        (0.95, WAVERING, 5, "a alone"),  # looks faster, and is simpler
        (1.01, STEADY, 5, "a alone"),  # slower with certainty, but by less than a tie
        (1.05, STEADY, 5, SEARCHED),
        (1.1, WAVERING, 5, SEARCHED),  # looks slower, though nobody knows
        (0.95, WAVERING, 1, SEARCHED),  # is not simpler
    ],
)
def test_a_tie_goes_to_fewer_partitions_unless_they_look_slower(
    alone: float, runs: np.ndarray, partitions: int, ships: str
) -> None:
    measured = {SEARCHED: _samples(1.0, np.ones(len(runs))), "a alone": _samples(alone, runs, seed=1)}
    part: Any = SimpleNamespace(backend="a")
    assert choose(measured, {SEARCHED: [part] * partitions, "a alone": [part]}).shipped == ships


def test_a_build_without_partitions_wins_no_tie() -> None:
    measured = {SEARCHED: _samples(1.0, STEADY), UNTOUCHED: _samples(1.0, STEADY, seed=1)}
    part: Any = SimpleNamespace(backend="a")
    assert choose(measured, {SEARCHED: [part] * 5, UNTOUCHED: None}).shipped == SEARCHED


def test_a_searched_plan_that_fails_is_replaced_and_one_that_is_stopped_early_does_not_count() -> None:
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
