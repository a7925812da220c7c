"""Race: contestants take turns in random order, round after round, and contestants that have lost leave."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from collage.deployed.entry import Entry
from collage.deployed.protocol import EndToEnd
from collage.measure.conditions import Conditions, Watch
from collage.measure.host_lock import timing
from collage.measure.patience import Patience
from collage.progress import Reporter

#: Name -> latencies of the rounds, all contestants that ever took part -> those that leave now, or None: it is over.
Judge = Callable[[Mapping[str, Sequence[float]]], Sequence[str] | None]


@dataclass
class Race:
    """The samples of a race.

    Attributes
    ----------
    samples
        Name -> for each round, from the first one on, the seconds of the calls of its turn.
    conditions
        The conditions of the machine in each round.
    """

    samples: dict[str, list[tuple[float, ...]]] = field(default_factory=dict)
    conditions: list[Conditions] = field(default_factory=list)

    def latencies(self, name: str) -> list[float]:
        """The median of each round, in seconds."""
        return [statistics.median(turn) for turn in self.samples[name]]

    @property
    def disturbed(self) -> float:
        """Share of the rounds in which the machine was disturbed."""
        return sum(c.disturbed for c in self.conditions) / max(1, len(self.conditions))

    def quiet(self, name: str) -> list[tuple[float, ...]]:
        """Its turns in rounds that were not disturbed."""
        return [t for t, c in zip(self.samples[name], self.conditions, strict=False) if not c.disturbed]


def everybody(_: Mapping[str, Sequence[float]]) -> Sequence[str]:
    """A judge who lets nobody leave."""
    return ()


def race(
    entries: Mapping[str, Entry],
    protocol: EndToEnd,
    rounds: int,
    rng: random.Random,
    judge: Judge,
    reporter: Reporter,
    patience: Patience | None = None,
) -> Race:
    """Run rounds until the judge ends the race, `rounds` at most. An entry that fails is out.

    Rounds of short calls wait for cores that are near each other, and are run again if these were moved apart, while
    there is patience. After that every round counts.

    Parameters
    ----------
    entries
        Name -> entry; those with a problem do not take part.
    protocol
        How long a turn is.
    rounds
        How many rounds there are at most.
    rng
        Draws the order of turns.
    judge
        Asked after each round who leaves.
    patience
        How long distant cores are waited for; None is not at all.
    """
    patience = patience or Patience(0.0)
    found = Race({name: [] for name, entry in entries.items() if entry.problem is None})
    running = list(found.samples)
    watch = Watch()
    for number in range(rounds):
        reporter.step(f"round {number + 1}: {len(running)} plans", 0)
        fastest = min((entries[name].latency for name in running), default=float("inf"))
        while True:
            begin = patience.begin(fastest, reporter)
            with timing(reporter):
                watch.processes = tuple(p for name in running for p in entries[name].processes)
                with watch:
                    turns = {n: entries[n].turn(protocol, fastest) for n in rng.sample(running, len(running))}
            running = [name for name in running if entries[name].problem is None]
            if not patience.repeats(fastest, watch.conditions.core_to_core, begin):
                break
        for name, turn in turns.items():
            if turn:
                found.samples[name].append(turn)
        found.conditions.append(watch.conditions)
        leaving = judge({name: found.latencies(name) for name in found.samples if entries[name].problem is None})
        if leaving is None:
            break
        running = [name for name in running if name not in leaving]
        if len(running) < 2 and number + 1 >= protocol.trial_rounds:
            break
    return found
