"""Checkpoint: an evolution in one JSON file, written after every generation, so that an interrupted one goes on.

It holds everything that the next generation depends on (individuals, latencies, the state of the random generator), so
a resumed evolution gives the result of an uninterrupted one. A checkpoint belongs to one search: it names, by a digest,
the network, the candidates, their costs and the parameters.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from collage.cost.cost import Cost
from collage.errors import CollageError
from collage.files import replacing
from searchers.evolution.cover_finder import Cover
from searchers.evolution.genome import Genome
from searchers.evolution.initial_covers import InitialCover

FORMAT = "collage-evolution"
VERSION = 2


@dataclass(frozen=True)
class Individual:
    """A genome and the cover that it stands for; two individuals of one cover are one."""

    genome: Genome
    cover: Cover


@dataclass
class Evolution:
    """The state of an evolution between two generations.

    Attributes
    ----------
    initial
        The covers that it began from, the incumbent first.
    rng
        Decides everything that is left to chance.
    generation
        How many are done.
    population
        The individuals that the next parents are chosen from.
    latencies
        Of every cover that was run, in seconds.
    leader
        The best cover at the last improvement.
    stale
        Generations since then.
    memo_hits
        Offspring whose cover was known already.
    passed_over
        Offspring that were not run, because others promised more.
    """

    initial: tuple[InitialCover, ...]
    rng: random.Random
    generation: int = 0
    population: tuple[Individual, ...] = ()
    latencies: dict[Cover, Cost] = field(default_factory=dict)
    leader: Cover = ()
    stale: int = 0
    memo_hits: int = 0
    passed_over: int = 0


class _Header(msgspec.Struct):
    """What tells whether the rest can be read."""

    format: str
    version: int
    search: str


class _Latency(msgspec.Struct):
    """The latency of a cover. JSON has neither NaN nor infinity: seconds are null when Unknown."""

    cover: Cover
    seconds: float | Literal["invalid"] | None
    spread: float
    samples: int
    reason: str

    @classmethod
    def of(cls, cover: Cover, cost: Cost) -> _Latency:
        seconds: float | Literal["invalid"] | None = cost.seconds
        if not cost.is_finite:
            seconds = "invalid" if cost.is_invalid else None
        return cls(cover, seconds, cost.spread, cost.samples, cost.reason)

    def cost(self) -> Cost:
        if self.seconds is None:
            return Cost.unknown(self.reason)
        if self.seconds == "invalid":
            return Cost.invalid(self.reason)
        return Cost(self.seconds, self.spread, self.samples, self.reason)


class _File(_Header):
    """The fields of a checkpoint: those of `Evolution`, as JSON has them."""

    generation: int
    initial: tuple[InitialCover, ...]
    population: tuple[Individual, ...]
    latencies: tuple[_Latency, ...]
    leader: Cover
    stale: int
    memo_hits: int
    passed_over: int
    random: tuple[int, tuple[int, ...], float | None]


def save(path: Path, evolution: Evolution, digest: str) -> None:
    """Write the checkpoint; a crash meanwhile leaves the one before.

    Raises
    ------
    CollageError
        The file cannot be written.
    """
    latencies = tuple(_Latency.of(cover, cost) for cover, cost in evolution.latencies.items())
    file = _File(
        FORMAT,
        VERSION,
        digest,
        evolution.generation,
        evolution.initial,
        evolution.population,
        latencies,
        evolution.leader,
        evolution.stale,
        evolution.memo_hits,
        evolution.passed_over,
        evolution.rng.getstate(),
    )
    try:
        with replacing(path) as partial:
            partial.write_bytes(msgspec.json.encode(file))
    except OSError as error:
        raise CollageError(f"the checkpoint {path} cannot be written ({error}): give another path") from error


def load(path: Path, digest: str, candidates: int, groups: int) -> Evolution | None:
    """The evolution in a checkpoint; None when there is no such file.

    Parameters
    ----------
    candidates, groups
        How many the search has; covers and genomes of others are damage.

    Raises
    ------
    CollageError
        The file is unreadable, damaged, of another version, or belongs to another search.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, f"cannot be read ({error})") from error
    try:
        header = msgspec.json.decode(data, type=_Header)
        if header.format != FORMAT:
            raise ValueError(f"its format is {header.format!r}, not {FORMAT!r}")
    except ValueError as error:
        raise _unusable(path, f"is damaged, or no checkpoint ({error})") from error
    if header.version != VERSION:
        raise _unusable(path, f"is of version {header.version!r}, and this is version {VERSION}")
    if header.search != digest:
        raise _unusable(path, "belongs to another search: another network, or other candidates, costs or parameters")
    try:
        evolution = _evolution(msgspec.json.decode(data, type=_File))
        _require_sound(evolution, candidates, groups)
    except (ValueError, TypeError) as error:
        raise _unusable(path, f"is damaged ({error})") from error
    return evolution


def _evolution(file: _File) -> Evolution:
    rng = random.Random()
    rng.setstate(file.random)
    return Evolution(
        file.initial,
        rng,
        file.generation,
        file.population,
        {latency.cover: latency.cost() for latency in file.latencies},
        file.leader,
        file.stale,
        file.memo_hits,
        file.passed_over,
    )


def _require_sound(evolution: Evolution, candidates: int, groups: int) -> None:
    """Raise ValueError when something is missing, or refers to what the search does not have."""
    if not evolution.initial or not evolution.population:
        raise ValueError("there is no cover in it")
    covers = [initial.cover for initial in evolution.initial] + [i.cover for i in evolution.population]
    if any(not 0 <= i < candidates for cover in (*covers, *evolution.latencies, evolution.leader) for i in cover):
        raise ValueError("a cover has candidates that do not exist")
    if any(len(individual.genome) != groups for individual in evolution.population):
        raise ValueError("a genome is of another length")


def _unusable(path: Path, why: str) -> CollageError:
    return CollageError(f"the checkpoint {path} {why}: delete it to begin anew, or give another path")
