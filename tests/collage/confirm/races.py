"""Made-up races, and a runner of plans that takes made-up seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collage.cost.cost import Cost
from collage.deployed.messages import Watched
from collage.deployed.protocol import EndToEnd
from collage.deployed.race import Race, everybody
from collage.deployed.rivals import Rival
from collage.measure.conditions import Conditions
from collage.progress import Reporter
from collage.testing.problems import candidate, graph_of

#: Three operators, one after another.
GRAPH = graph_of([[], [0], [1]])


def placement(backend: str, parts: int = 3) -> list[Any]:
    if parts == 1:
        return [candidate(GRAPH, backend, range(3))]
    return [candidate(GRAPH, backend, [i]) for i in range(3)]


def rounds_of(
    seconds: float, drift: np.ndarray, noise: float = 0.002, seed: int = 0, calls: int = 3
) -> list[tuple[float, ...]]:
    """A turn of so many calls in each round: their median is `seconds` times the drift, but for the noise."""
    rng = np.random.default_rng(seed)
    jitter = rng.uniform(1 - noise, 1 + noise, len(drift))
    return [(float(seconds * d * j),) * calls for d, j in zip(drift, jitter, strict=True)]


def race_of(samples: Mapping[str, list[tuple[float, ...]]], disturbed: bool = False) -> Race:
    length = max(map(len, samples.values()))
    return Race(dict(samples), [Conditions(load=1.0 if disturbed else 0.0)] * length)


class MadeUpRunner:
    """Runs entrants: a rival by the name of its engine, a placement by its backends joined by "+", TVM's own build by
    "untouched". The whole machine is so many times slower in each race after the first. After so many races, `later`
    has other seconds.
    """

    threads = 2
    device = "cpu"
    protocol = EndToEnd(race_rounds=20, final_rounds=10)
    capacity = 100
    fastest = math.inf

    def __init__(self, seconds: Mapping[str, float], slower: float = 1.0, noise: float = 0.01) -> None:
        self.seconds, self.slower, self.noise = seconds, slower, noise
        self.races: list[list[str]] = []
        self.later: Mapping[int, Mapping[str, float]] = {}
        self.reporter = Reporter()
        self.rng = np.random.default_rng(0)

    def name(self, entrant: Any) -> str:
        if isinstance(entrant, Rival):
            return entrant.engine
        return "untouched" if entrant is None else "+".join(dict.fromkeys(c.backend for c in entrant))

    def enter(self, entrants: Mapping[str, Any]) -> dict[str, Any]:
        return {name: _Entry(self.seconds.get(self.name(e), 1.0)) for name, e in entrants.items()}

    def race(self, entrants: Mapping[str, Any], rounds: int, judge: Any = everybody) -> Race:
        self.seconds = self.later.get(len(self.races), self.seconds)
        running = {name: self.name(e) for name, e in entrants.items() if self.enter({name: e})[name].problem is None}
        slow = self.slower ** len(self.races)
        self.races.append(sorted(running.values()))
        found = Race({name: [] for name in running})
        for _ in range(rounds):
            for name, who in running.items():
                jitter = float(self.rng.uniform(1 - self.noise, 1 + self.noise))
                found.samples[name].append((self.seconds[who] * slow * jitter,) * 3)
            found.conditions.append(Conditions())
            leaving = judge({name: found.latencies(name) for name in found.samples})
            if leaving is None:
                break
            running = {name: who for name, who in running.items() if name not in leaving}
        return found

    def watch(self, entrant: Sequence[Any]) -> Watched:
        seconds = self.seconds[self.name(entrant)] * self.slower ** max(0, len(self.races) - 1)
        each = seconds / len(entrant)
        names = [f"collage_{i}" for i in range(len(entrant))]
        calls = tuple((name, i * each, (i + 0.9) * each) for i, name in enumerate(names))
        return Watched(tuple((name, each) for name in names), (), calls)

    def forget(self, entrants: Sequence[Any]) -> None:
        pass


class _Entry:
    def __init__(self, seconds: float) -> None:
        self.problem = None if np.isfinite(seconds) else Cost.invalid("crashes")
