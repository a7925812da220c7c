"""Whose order is in doubt after some rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from collage.confirm.judges import in_doubt, leaves_final, leaves_race
from collage.deployed.protocol import EndToEnd
from collage.measure.sequential import looks


def test_a_lead_that_is_neither_proven_nor_excluded_is_in_doubt() -> None:
    steady, noisy = np.ones(12), 1 + 0.3 * np.random.default_rng(0).standard_normal(12)
    partitions = {"one": 1, "many": 9}
    latencies = {"one": list(steady), "many": list(0.9 * noisy)}
    assert in_doubt(latencies, partitions) == ["one", "many"]
    assert in_doubt({**latencies, "many": list(0.9 * steady)}, partitions) == [], "it is proven"
    assert in_doubt({**latencies, "many": list(1.1 * noisy)}, partitions) == [], "there is no lead"
    assert in_doubt({**latencies, "many": list(0.99 * noisy)}, partitions) == [], "it would be a tie"
    assert in_doubt({**latencies, "many": latencies["many"][:11]}, partitions) == [], "it has left"
    assert in_doubt({"rival": list(steady)}, partitions) == []


def test_who_is_in_doubt_is_looked_at_now_and_then() -> None:
    """A look after every round finds a lead sooner or later where there is none."""
    noisy = np.random.default_rng(0).standard_normal((3, 60))
    latencies = np.array([[1.0], [0.9], [1.01]]) * (1 + np.array([[0.0], [0.3], [0.3]]) * noisy)
    names, usual, longest = ("one", "many", "more"), 20, 3

    def leaving(judge: Callable[..., Sequence[str] | None], count: int) -> Sequence[str] | None:
        rounds = {name: list(row[:count]) for name, row in zip(names, latencies, strict=True)}
        return judge(rounds, {"one": 1, "many": 9, "more": 9}, usual, longest)

    schedule = [20, *(count for count in looks(usual * longest) if count > usual)]
    for judge in (leaves_race, leaves_final):
        found = {count: leaving(judge, count) for count in range(20, 61)}
        assert [count for count, out in found.items() if out] == [c for c in schedule if found[c]]
        assert found[20] == ["more"] and found[21] == []


@pytest.mark.parametrize(("latency", "rounds"), [(0.1e-3, 80), (1e-3, 80), (4e-3, 40), (0.03, 20), (1.0, 20)])
def test_rounds_of_short_turns_are_as_many_more(latency: float, rounds: int) -> None:
    assert EndToEnd().rounds(20, latency) == rounds
