"""When whole networks have been sampled enough: rivals that may be the fastest go on until they are told apart."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from collage.measure.protocol import END_TO_END, Protocol
from collage.measure.worker import SLOW, sample


class Rival:
    """Takes made-up seconds, as fast as they are asked for."""

    def __init__(self, seconds: float, noise: float, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.seconds, self.noise = seconds, noise

    def time_once(self, protocol: Protocol, threads: int) -> float:
        return self.seconds * float(self.rng.uniform(1 - self.noise, 1 + self.noise))

    def watch_once(self) -> list[object]:
        return []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second per look at the clock."""

    def ticks() -> Iterator[float]:
        now = 0.0
        while True:
            yield now
            now += 1.0

    reading = ticks()
    monkeypatch.setattr("collage.measure.worker.time.monotonic", lambda: next(reading))


def _counts(*rivals: Rival) -> list[tuple[int, str]]:
    found = sample(dict(enumerate(rivals)), {}, END_TO_END, 1, lambda event: None)  # type: ignore[arg-type]
    return [(len(found[i].samples), found[i].reason) for i in range(len(rivals))]


@pytest.mark.usefixtures("clock")
def test_two_that_are_close_go_on_while_the_third_has_lost() -> None:
    (first, _), (second, _), (third, why) = _counts(Rival(1.0, 0.1, 0), Rival(1.001, 0.1, 1), Rival(1.5, 0.1, 2))
    assert third < first and third < second and why == "time limit"


@pytest.mark.usefixtures("clock")
def test_what_is_never_told_apart_ends() -> None:
    (first, _), (second, _) = _counts(Rival(1.0, 0.5, 0), Rival(1.0, 0.5, 1))
    assert first == second <= 3 * END_TO_END.time_limit_s + END_TO_END.warmup


@pytest.mark.usefixtures("clock")
def test_equals_that_are_known_to_be_equal_end_early() -> None:
    (first, _), (second, _) = _counts(Rival(1.0, 0.005, 0), Rival(1.0, 0.005, 1))
    assert first == second <= END_TO_END.time_limit_s + END_TO_END.warmup


@pytest.mark.usefixtures("clock")
def test_the_hopeless_stop_after_three() -> None:
    (_, _), (count, why) = _counts(Rival(1.0, 0.01, 0), Rival(9.0, 0.01, 1))
    assert (count, why) == (3, SLOW)
