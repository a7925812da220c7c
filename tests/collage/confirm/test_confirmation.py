"""Which plan ships: ties, steadiness, drift, rivals. Latencies are made up, as rounds of a race."""

from __future__ import annotations

import math

import numpy as np
import pytest

from collage.confirm.confirmation import SEARCHED, UNTOUCHED, Confirmation, Contestant, choose, contestant
from collage.cost.cost import Cost
from collage.measure.sequential import ratio
from tests.collage.confirm.races import race_of, rounds_of

STEADY = np.ones(25)
#: A neighbour that makes everything up to four times slower for a while.
DRIFT = np.concatenate([np.ones(8), np.linspace(1, 4, 9), np.full(8, 2.0)])


@pytest.mark.parametrize("drift", [STEADY, DRIFT], ids=["steady", "drifting"])
def test_the_fastest_ships_even_on_a_machine_that_drifts(drift: np.ndarray) -> None:
    race = race_of(
        {
            SEARCHED: rounds_of(1.0, drift),
            "a alone": rounds_of(0.95, drift, seed=1),
            "b alone": rounds_of(0.9, drift, seed=2),
        }
    )
    assert choose(race, {SEARCHED: 1, "a alone": 5, "b alone": 5}) == "b alone"


@pytest.mark.parametrize(
    ("alone", "partitions", "ships"),
    [
        (0.985, 9, SEARCHED),  # faster by less than a tie, and not simpler
        (0.985, 1, "a alone"),
        (1.01, 1, "a alone"),  # slower, but by less than a tie
        (1.05, 1, SEARCHED),
        (0.95, 9, "a alone"),
    ],
)
def test_a_tie_goes_to_fewer_partitions(alone: float, partitions: int, ships: str) -> None:
    race = race_of({SEARCHED: rounds_of(1.0, STEADY), "a alone": rounds_of(alone, STEADY, seed=1)})
    assert choose(race, {SEARCHED: 5, "a alone": partitions}) == ships


@pytest.mark.parametrize(("noise", "ships"), [(0.3, "a alone"), (0.01, SEARCHED)])
def test_a_lead_within_the_doubt_does_not_pay_for_more_partitions(noise: float, ships: str) -> None:
    race = race_of(
        {SEARCHED: rounds_of(1.0, STEADY, noise), "a alone": rounds_of(1.04, STEADY, noise, seed=1)},
    )
    assert choose(race, {SEARCHED: 50, "a alone": 1}) == ships


def test_among_equals_the_lower_95th_percentile_ships() -> None:
    """Nine of ten calls are equal; one of ten takes three times as long on the plan of fewer partitions."""
    steady = [(1.0,) * 10 for _ in range(25)]
    tailed = [(1.0,) * 9 + (3.0,) for _ in range(25)]
    race = race_of({SEARCHED: steady, "a alone": tailed})
    assert choose(race, {SEARCHED: 5, "a alone": 1}) == SEARCHED
    found = contestant("a alone", race, SEARCHED)
    assert found.percentile == 3.0 and found.latency.seconds == 1.0


def test_a_steadier_plan_that_seems_slower_does_not_ship() -> None:
    """Beside a busy process all is in doubt: that a plan cannot be told apart is no sign that it is equal."""
    noise = np.exp(0.3 * np.random.default_rng(0).standard_normal((2, 25)))
    tailed = [(median,) * 9 + (5 * median,) for median in noise[0]]
    for slower, ships in ((1.1, "a alone"), (1.0, "b alone")):
        level = slower * float(np.median(noise[0]) / np.median(noise[1]))
        race = race_of({"a alone": tailed, "b alone": [(level * median,) * 10 for median in noise[1]]})
        found = ratio(race.latencies("b alone"), race.latencies("a alone"))
        assert found.low < 1.0 < found.high
        assert choose(race, {"a alone": 1, "b alone": 1}) == ships


@pytest.mark.parametrize("rounds", [12, 20])
def test_of_equal_plans_of_few_long_calls_the_simpler_one_nearly_always_ships(rounds: int) -> None:
    rng = np.random.default_rng(0)
    shipped = []
    for _ in range(200):
        calls = np.exp(0.05 * rng.standard_t(3, (2, rounds, 1)))
        race = race_of({name: list(map(tuple, of)) for name, of in zip((SEARCHED, "a alone"), calls, strict=True)})
        shipped.append(choose(race, {SEARCHED: 2, "a alone": 1}))
    assert shipped.count(SEARCHED) <= 0.07 * len(shipped)


def test_a_build_without_partitions_wins_no_tie() -> None:
    race = race_of({SEARCHED: rounds_of(1.0, STEADY), UNTOUCHED: rounds_of(1.0, STEADY, seed=1)})
    assert choose(race, {SEARCHED: 5, UNTOUCHED: math.inf}) == SEARCHED


def test_who_left_the_race_does_not_ship_and_who_may_not_ship_is_not_asked() -> None:
    race = race_of(
        {
            SEARCHED: rounds_of(1.0, STEADY),
            "a alone": rounds_of(0.5, STEADY[:4]),
            "openvino by itself": rounds_of(0.1, STEADY),
        }
    )
    assert choose(race, {SEARCHED: 5, "a alone": 1}) == SEARCHED


def test_calls_in_quiet_rounds_are_told_apart() -> None:
    race = race_of({SEARCHED: rounds_of(1.0, STEADY)}, disturbed=True)
    assert contestant(SEARCHED, race, SEARCHED).quiet is None and race.disturbed == 1.0
    race = race_of({SEARCHED: rounds_of(1.0, STEADY)})
    assert contestant(SEARCHED, race, SEARCHED).quiet is not None


def confirmation(low: float, high: float, shipped: str = SEARCHED) -> Confirmation:
    rival = Contestant("openvino by itself", Cost(0.9), (low, (low + high) / 2, high), rival=True)
    return Confirmation(shipped, (Contestant(SEARCHED, Cost(1.0), (1.0, 1.0, 1.0)), rival))


def test_a_rival_is_faster_when_its_interval_says_so() -> None:
    assert confirmation(0.85, 0.95).faster_rival is not None
    assert confirmation(0.85, 1.01).faster_rival is None


def test_the_searched_plan_that_ships_is_called_collage() -> None:
    names = [SEARCHED, f"{SEARCHED}, round 2"]
    both = tuple(Contestant(name, Cost(float(i + 1))) for i, name in enumerate(names))
    renamed, answer = Confirmation(names[1], both).with_answer(names)
    assert (renamed.shipped, answer) == (SEARCHED, 1)
    assert renamed.of(SEARCHED).latency.seconds == 2.0 and renamed.of(names[1]).latency.seconds == 1.0
    same, answer = Confirmation("a alone", both).with_answer(names)
    assert (same.shipped, answer) == ("a alone", 0)
