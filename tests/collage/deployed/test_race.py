"""Turns, rounds, and who leaves; contestants are made up."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest

from collage.cost.cost import Cost
from collage.deployed.protocol import EndToEnd
from collage.deployed.race import everybody, race
from collage.measure import conditions
from collage.measure import patience as module
from collage.measure.patience import Patience
from collage.progress import Reporter

PROTOCOL = EndToEnd()


class MadeUp:
    """Takes its turns as a script says; () is a failure."""

    processes = ()

    def __init__(self, seconds: float, log: list[str], name: str, fails_at: int | None = None) -> None:
        self.latency, self.problem = seconds, None
        self.log, self.name, self.left = log, name, fails_at

    def turn(self, protocol: EndToEnd, fastest: float) -> tuple[float, ...]:
        self.log.append(self.name)
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.problem = Cost.invalid("crashes")  # type: ignore[assignment]
                return ()
        return (self.latency, self.latency * 3, self.latency * 2)


def entries(log: list[str], **fails_at: int | None) -> dict[str, MadeUp]:
    return {name: MadeUp(1.0, log, name, at) for name, at in fails_at.items()}


def test_all_take_one_turn_a_round_in_an_order_that_changes() -> None:
    log: list[str] = []
    found = race(entries(log, a=None, b=None, c=None), PROTOCOL, 8, random.Random(0), everybody, Reporter())  # type: ignore[arg-type]
    rounds = [tuple(log[i : i + 3]) for i in range(0, 24, 3)]
    assert all(sorted(each) == ["a", "b", "c"] for each in rounds) and len(set(rounds)) > 2
    assert found.latencies("a") == [2.0] * 8 and len(found.conditions) == 8


def test_who_has_lost_leaves_and_who_fails_is_out() -> None:
    log: list[str] = []

    def judge(rounds: Mapping[str, Sequence[float]]) -> Sequence[str]:
        return [name for name, latencies in rounds.items() if name == "b" and len(latencies) == 2]

    found = race(entries(log, a=None, b=None, c=3, d=None), PROTOCOL, 6, random.Random(0), judge, Reporter())  # type: ignore[arg-type]
    assert {name: len(turns) for name, turns in found.samples.items()} == {"a": 6, "b": 2, "c": 3, "d": 6}


def test_the_race_ends_when_the_judge_says_so_or_nobody_is_left_to_compare_with() -> None:
    log: list[str] = []
    found = race(entries(log, a=None, b=None), PROTOCOL, 50, random.Random(0), lambda _: None, Reporter())  # type: ignore[arg-type]
    assert len(found.conditions) == 1
    found = race(entries(log, a=None), PROTOCOL, 50, random.Random(0), everybody, Reporter())  # type: ignore[arg-type]
    assert len(found.samples["a"]) == PROTOCOL.trial_rounds


@pytest.mark.parametrize("seed", [0, 1])
def test_the_order_is_that_of_the_seed(seed: int) -> None:
    logs: list[list[str]] = [[], []]
    for log in logs:
        race(entries(log, a=None, b=None, c=None), PROTOCOL, 5, random.Random(seed), everybody, Reporter())  # type: ignore[arg-type]
    assert logs[0] == logs[1]


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How far cores are from each other, look by look; the last one stays."""
    looks: list[float] = []

    def look() -> float:
        return looks.pop(0) if len(looks) > 1 else looks[0]

    monkeypatch.setattr(module, "core_to_core", look)
    monkeypatch.setattr(conditions, "core_to_core", look)
    monkeypatch.setattr(module, "_LOOK_S", 0.0)
    return looks


def test_a_round_whose_cores_were_moved_apart_is_run_again(apart: list[float]) -> None:
    apart.extend([1.0, 1.0, 5.0, 5.0, 5.0, 1.0])  # before, around the round; then looks while waiting
    log: list[str] = []
    short = {name: MadeUp(1e-3, log, name) for name in "ab"}
    found = race(short, PROTOCOL, 2, random.Random(0), everybody, Reporter(), Patience(60.0))  # type: ignore[arg-type]
    assert len(log) == 6 and len(found.samples["a"]) == 2 and {c.core_to_core for c in found.conditions} == {1.0}


def test_without_patience_and_for_long_calls_every_round_counts(apart: list[float]) -> None:
    apart.append(5.0)
    for seconds, patience in ((1e-3, Patience(0.0)), (1.0, Patience(60.0))):
        log: list[str] = []
        entrants = {name: MadeUp(seconds, log, name) for name in "ab"}
        found = race(entrants, PROTOCOL, 2, random.Random(0), everybody, Reporter(), patience)  # type: ignore[arg-type]
        assert len(log) == 4 and {c.core_to_core for c in found.conditions} == {5.0}


def test_patience_ends(apart: list[float]) -> None:
    apart.append(5.0)
    patience = Patience(0.05)
    began = patience.begin(1e-3, Reporter())
    assert patience.seconds == 0.0 and not patience.repeats(1e-3, 5.0, began)
