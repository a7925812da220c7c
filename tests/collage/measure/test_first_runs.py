"""What one run decides when candidates are timed: nothing, unless it is long or hopeless twice."""

from __future__ import annotations

from typing import Any

from collage.measure.protocol import Protocol
from collage.measure.worker import SLOW, sample


class Takes:
    """An artifact whose runs take this long, in seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.runs = seconds, 0

    def run(self) -> list[Any]:
        return []

    def time_once(self, protocol: Protocol, threads: int) -> float:
        self.runs += 1
        return self.seconds


def test_a_host_that_stood_still_in_the_first_run_condemns_nobody() -> None:
    artifacts = {0: Takes(0.005), 1: Takes(0.0001)}
    sampled = sample(artifacts, {0: 0.005, 1: 0.5}, Protocol(), 1, lambda event: None)
    assert sampled[1].reason != SLOW and set(sampled[1].samples) == {0.0001}
    assert sampled[0].reason == SLOW


def test_who_is_hopeless_twice_is_out() -> None:
    artifacts = {0: Takes(0.001), 1: Takes(0.4)}
    sampled = sample(artifacts, {0: 0.001, 1: 0.5}, Protocol(), 1, lambda event: None)
    assert sampled[1].reason == SLOW and sampled[1].samples == [0.4] and artifacts[1].runs == 1


def test_a_long_run_is_not_repeated() -> None:
    artifacts = {0: Takes(0.001), 1: Takes(3.0)}
    sampled = sample(artifacts, {0: 0.001, 1: 3.0}, Protocol(), 1, lambda event: None)
    assert sampled[1].reason == SLOW and artifacts[1].runs == 0
