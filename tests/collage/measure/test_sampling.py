"""When candidates have been sampled enough."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from collage.measure.protocol import DeviceProtocol, Protocol
from collage.measure.worker import SLOW, sample

PROTOCOL = Protocol(time_limit_s=1000.0)


class Rival:
    """Takes made-up seconds, as fast as they are asked for."""

    def __init__(self, seconds: float, noise: float, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.seconds, self.noise = seconds, noise

    def time_once(self, protocol: Protocol, threads: int) -> float:
        return self.seconds * float(self.rng.uniform(1 - self.noise, 1 + self.noise))


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
    found = sample(dict(enumerate(rivals)), {}, PROTOCOL, 1, lambda event: None)  # type: ignore[arg-type]
    return [(len(found[i].samples), found[i].reason) for i in range(len(rivals))]


class Watched(Rival):
    """Remembers how it was run."""

    def __init__(self) -> None:
        super().__init__(1.0, 0.5, 0)
        self.weights: list[str] = []

    def time_once(self, protocol: Protocol, threads: int) -> float:
        self.weights.append(protocol.weights)
        return super().time_once(protocol, threads)


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(("protocol", "warming"), [(PROTOCOL, "hot"), (DeviceProtocol(time_limit_s=1000.0), "cold")])
def test_caches_of_the_host_are_emptied_for_samples_that_count(protocol: Protocol, warming: str) -> None:
    watched = Watched()
    found = sample({0: watched}, {}, protocol, 1, lambda event: None)[0]  # type: ignore[dict-item]
    assert watched.weights == [warming] * protocol.warmup + ["cold"] * len(found.samples)


@pytest.mark.usefixtures("clock")
def test_noise_goes_on_until_time_is_up_and_certainty_ends_early() -> None:
    (noisy, why), (steady, because) = _counts(Rival(1.0, 0.5, 0), Rival(1.0, 0.001, 1))
    assert (noisy, why) == (PROTOCOL.max_samples, "sample limit")
    assert (steady, because) == (PROTOCOL.min_samples, "converged")


@pytest.mark.usefixtures("clock")
def test_the_hopeless_stop_after_three() -> None:
    (_, _), (count, why) = _counts(Rival(1.0, 0.01, 0), Rival(9.0, 0.01, 1))
    assert (count, why) == (3, SLOW)
