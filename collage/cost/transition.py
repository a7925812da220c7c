"""Transition: the cost of passing a tensor from a partition of one backend to one of another.

The threads of another pool have to be woken, those of the first still run down, and the tensor lies in the caches of
other cores. `collage.measure.transitions` measures this for tensors of several sizes. Here a line through these points
becomes what a search charges, and pairs that could not be measured get the numbers of the nearest pair.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from math import hypot

from collage.cost.cost import Cost

#: Producer and consumer, by name.
Pair = tuple[str, str]


@dataclass(frozen=True)
class Transition:
    """A latency and seconds per byte.

    Attributes
    ----------
    latency
        Seconds for every transition.
    seconds_per_byte
        Seconds for every byte of the tensors that pass.
    spread
        Half-width of the interval of `latency`, in seconds; 0 where nothing was measured.
    measured
        (bytes, seconds, half-width of their 95% confidence interval) of each size, as measured; seconds are negative
        where the consumer was faster after the producer than after itself. What is charged is never negative.
    like
        "" if this pair was measured; else the source of its numbers, such as another pair.
    """

    latency: float
    seconds_per_byte: float = 0.0
    spread: float = 0.0
    measured: tuple[tuple[int, float, float], ...] = ()
    like: str = ""

    def __post_init__(self) -> None:
        if not (0 <= self.latency < float("inf") and 0 <= self.seconds_per_byte < float("inf")):
            raise ValueError(f"a transition is finite and not negative: {self.latency}, {self.seconds_per_byte}")

    def seconds(self, size: int) -> float:
        """Seconds to pass tensors of `size` bytes in all."""
        return self.latency + self.seconds_per_byte * size

    @classmethod
    def through(cls, points: Sequence[tuple[int, float, float]]) -> Transition:
        """The line of least squares that is nowhere negative. Points are weighted by their intervals, and steep lines
        count as unlikely.

        Parameters
        ----------
        points
            (bytes, seconds, half-width of the interval in seconds); one at least.
        """
        points = tuple(sorted(points))
        latency, slope, variance = _line(points)
        if latency < 0 or slope < 0:
            through_zero, level = _through_zero(points), _level(points)
            latency, slope, variance = min((through_zero, level), key=lambda line: _error(points, line[0], line[1]))
        return cls(latency, slope, variance**0.5, points)


#: How far points may lie from a line for other reasons than noise, in seconds.
_MODEL_ERROR_S = 3e-6
#: What bytes cost is expected to lie within this around nothing, in seconds per byte: 20 GB/s. Without it noise, which
#: grows with the size of the tensors, would become a price.
_EXPECTED_SLOPE = 5e-11
#: Half-width of the interval of a latency, in seconds, from which on it says nothing: changes of pool take 10 to 50 µs.
_VAGUE_S = 25e-6

#: Where nothing was measured: between backends of one pool of threads, and between those of two pools. Tensors of 16 to
#: 256 KiB between the five CPU backends, two threads on a virtual machine: 0 to 7 µs, and 5 to 45 µs.
SAME_POOL, OTHER_POOL = Transition(2e-6), Transition(20e-6)


def transitions_of(latencies: Mapping[tuple[str, str, int], Cost]) -> dict[Pair, Transition]:
    """The transition of each pair whose latencies are there, and not so noisy that they say nothing.

    Parameters
    ----------
    latencies
        (producer, consumer, bytes) -> latency of the consumer right after the producer; pairs of a backend with itself
        are the reference.
    """
    points: dict[Pair, list[tuple[int, float, float]]] = {}
    for (a, b, size), after in latencies.items():
        alone = latencies.get((b, b, size), Cost.unknown())
        if a != b and after.is_finite and alone.is_finite:
            point = (size, after.seconds - alone.seconds, hypot(after.spread, alone.spread))
            points.setdefault((a, b), []).append(point)
    lines = {pair: Transition.through(of_pair) for pair, of_pair in points.items()}
    return {pair: line for pair, line in lines.items() if line.spread < _VAGUE_S}


def completed(known: Mapping[Pair, Transition], pools: Mapping[str, str]) -> dict[Pair, Transition]:
    """A transition for every ordered pair of different backends: the known ones, and for the others the nearest known.

    Nearest is the median of the pairs with the same pools of threads on both sides, then of those that change pool, or
    stay in it, as this one does, and then what the bundled backends took on another machine.

    Parameters
    ----------
    known
        By pair of names.
    pools
        Name of each backend -> its pool of threads (`Backend.pool`).
    """
    return {pair: known.get(pair) or _nearest(pair, known, pools) for pair in permutations(pools, 2)}


def _nearest(pair: Pair, known: Mapping[Pair, Transition], pools: Mapping[str, str]) -> Transition:
    between = (pools[pair[0]], pools[pair[1]])
    same = {p: t for p, t in known.items() if p[0] in pools and p[1] in pools}
    alike = [p for p in same if (pools[p[0]], pools[p[1]]) == between]
    alike = alike or [p for p in same if (pools[p[0]] == pools[p[1]]) == (between[0] == between[1])]
    if not alike:
        default = SAME_POOL if between[0] == between[1] else OTHER_POOL
        return replace(default, like="what bundled backends took on another machine")
    middle = statistics.median_low(same[p].latency for p in alike)
    chosen = min(p for p in alike if same[p].latency == middle)
    return replace(same[chosen], like=" -> ".join(chosen))


def transition_notes(transitions: Mapping[Pair, Transition]) -> list[str]:
    """Which transitions were not measured, and what they were charged by."""
    by_source: dict[str, list[str]] = {}
    for pair, transition in transitions.items():
        if transition.like:
            by_source.setdefault(transition.like, []).append(" -> ".join(pair))
    return [
        f"transitions without a measurement, charged like {source}: {', '.join(pairs)}"
        for source, pairs in by_source.items()
    ]


def _weights(points: Sequence[tuple[int, float, float]]) -> list[float]:
    # A line is not the truth to the last nanosecond, however narrow the interval of one point is.
    return [1 / (half**2 + _MODEL_ERROR_S**2) for _, _, half in points]


def _line(points: Sequence[tuple[int, float, float]]) -> tuple[float, float, float]:
    """Latency, seconds per byte, and the latency's variance."""
    w = _weights(points)
    total = sum(w)
    mean_x = sum(wi * x for wi, (x, _, _) in zip(w, points, strict=True)) / total
    mean_y = sum(wi * y for wi, (_, y, _) in zip(w, points, strict=True)) / total
    spread_x = sum(wi * (x - mean_x) ** 2 for wi, (x, _, _) in zip(w, points, strict=True)) + _EXPECTED_SLOPE**-2
    slope = sum(wi * (x - mean_x) * (y - mean_y) for wi, (x, y, _) in zip(w, points, strict=True)) / spread_x
    return mean_y - slope * mean_x, slope, 1 / total + mean_x**2 / spread_x


def _through_zero(points: Sequence[tuple[int, float, float]]) -> tuple[float, float, float]:
    w = _weights(points)
    squares = sum(wi * x * x for wi, (x, _, _) in zip(w, points, strict=True)) + _EXPECTED_SLOPE**-2
    slope = sum(wi * x * y for wi, (x, y, _) in zip(w, points, strict=True)) / squares
    return 0.0, max(0.0, slope), 1 / sum(w)


def _level(points: Sequence[tuple[int, float, float]]) -> tuple[float, float, float]:
    w = _weights(points)
    return max(0.0, sum(wi * y for wi, (_, y, _) in zip(w, points, strict=True)) / sum(w)), 0.0, 1 / sum(w)


def _error(points: Sequence[tuple[int, float, float]], latency: float, slope: float) -> float:
    return sum(wi * (latency + slope * x - y) ** 2 for wi, (x, y, _) in zip(_weights(points), points, strict=True))
