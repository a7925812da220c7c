"""EndToEnd: how whole networks are timed. It is part of the key of every end-to-end latency."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class EndToEnd:
    """Contestants take turns in random order, round after round; each has a process of its own, one awake at a time.

    Attributes
    ----------
    calls
        Calls of a turn, as far as `turn_s` allows.
    turn_s
        Seconds that a turn lasts at least, and at most unless that is less than a call. Half as long is spent before it
        on warm-up calls that do not count: a process that slept needs them to reach its speed. Many short turns say
        more than a few long ones: calls that follow each other are slow or fast together (`benchmarks.turns`).
    usual_turn_s
        Turns that numbers of rounds are for: of shorter ones there are as many more (`rounds`).
    trial_rounds
        Rounds of a placement's trial, beside the fastest one so far.
    race_rounds
        Rounds of the race; contestants that have lost leave earlier.
    final_rounds
        Rounds of the final: fresh samples of the winner, the best other plan and the rivals.
    longest
        So many times these rounds are run at most, by those whose order is in doubt.
    patience_s
        Seconds that a tuning run waits, in all, for processors that a hypervisor put far from each other: rounds of
        short calls are run again (`collage.measure.patience`).
    watched_runs
        Runs with a stopwatch around each call.
    version
        Version of the procedure itself.
    """

    calls: int = 5
    turn_s: tuple[float, float] = (0.01, 0.1)
    usual_turn_s: float = 0.04
    trial_rounds: int = 4
    race_rounds: int = 24
    final_rounds: int = 15
    longest: int = 3
    patience_s: float = 60.0
    watched_runs: int = 5
    version: int = 16

    def turn(self, latency: float) -> float:
        """Seconds of a turn of calls that take so many seconds."""
        return min(max(self.calls * latency, self.turn_s[0]), self.turn_s[1])

    def rounds(self, usual: int, latency: float) -> int:
        """How many rounds take the place of so many where the fastest contestant's calls take so many seconds."""
        return max(usual, round(usual * self.usual_turn_s / self.turn(latency)))

    def as_dict(self) -> dict[str, Any]:
        """For keys and records."""
        return {**asdict(self), "turn_s": list(self.turn_s), "span": "deployed"}
