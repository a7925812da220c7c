"""Checkpoint: an evolution in one JSON file, written after every generation, so that an interrupted one goes on.

What is kept is all that the next generation depends on (the individuals, the latencies, the random generator's state),
so a resumed evolution gives what an uninterrupted one would have given. A checkpoint belongs to one search: it names,
by a digest, the network, the candidates, their costs and the parameters.
"""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collage.cost import Cost
from collage.errors import CollageError
from searchers.evolution.cover_finder import Cover
from searchers.evolution.genome import Gene, Genome, Link
from searchers.evolution.initial_covers import Seed

FORMAT = "collage-evolution"
VERSION = 1


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
    seeds: where it began, the incumbent first.
    rng: decides everything that is left to chance.
    generation: how many are done.
    population: the individuals that the next parents are chosen from.
    latencies: of every cover that was run, in seconds.
    leader: the best cover at the last improvement.
    stale: generations since then.
    memo_hits: offspring whose cover was known already.
    passed_over: offspring that were not run, because others promised more.
    """

    seeds: tuple[Seed, ...]
    rng: random.Random
    generation: int = 0
    population: tuple[Individual, ...] = ()
    latencies: dict[Cover, Cost] = field(default_factory=dict)
    leader: Cover = ()
    stale: int = 0
    memo_hits: int = 0
    passed_over: int = 0


def save(path: Path, evolution: Evolution, digest: str) -> None:
    """Write the checkpoint; a crash meanwhile leaves the one before.

    Raises
    ------
    CollageError: the file cannot be written.
    """
    version, internal, gauss = evolution.rng.getstate()
    data = {
        "format": FORMAT,
        "version": VERSION,
        "search": digest,
        "generation": evolution.generation,
        "seeds": [{"name": seed.name, "cover": seed.cover} for seed in evolution.seeds],
        "population": [{"genome": i.genome, "cover": i.cover} for i in evolution.population],
        "latencies": [{"cover": cover, **_cost_to_dict(cost)} for cover, cost in evolution.latencies.items()],
        "leader": evolution.leader,
        "stale": evolution.stale,
        "memo_hits": evolution.memo_hits,
        "passed_over": evolution.passed_over,
        "random": [version, internal, gauss],
    }
    partial = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(data))
        os.replace(partial, path)
    except OSError as error:
        raise CollageError(f"the checkpoint {path} cannot be written ({error}): give another path") from error


def load(path: Path, digest: str, candidates: int, groups: int) -> Evolution | None:
    """The evolution in a checkpoint; None when there is no such file.

    Parameters
    ----------
    candidates, groups: how many the search has; covers and genomes of others are damage.

    Raises
    ------
    CollageError: the file is unreadable, damaged, of another version, or belongs to another search.
    """
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable(path, f"cannot be read ({error})") from error
    try:
        data = json.loads(text)
        if data["format"] != FORMAT:
            raise ValueError(f"its format is {data['format']!r}, not {FORMAT!r}")
        version, search = data["version"], data["search"]
    except (ValueError, KeyError, TypeError) as error:
        raise _unusable(path, f"is damaged, or no checkpoint ({type(error).__name__}: {error})") from error
    if version != VERSION:
        raise _unusable(path, f"is of version {version!r}, and this is version {VERSION}")
    if search != digest:
        raise _unusable(path, "belongs to another search: another network, or other candidates, costs or parameters")
    try:
        evolution = _from_dict(data)
        _require_sound(evolution, candidates, groups)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise _unusable(path, f"is damaged ({type(error).__name__}: {error})") from error
    return evolution


def _require_sound(evolution: Evolution, candidates: int, groups: int) -> None:
    """Raise ValueError when something is missing, or refers to what the search does not have."""
    if not evolution.seeds or not evolution.population:
        raise ValueError("there is nobody in it")
    covers = [seed.cover for seed in evolution.seeds] + [individual.cover for individual in evolution.population]
    if any(not 0 <= i < candidates for cover in (*covers, *evolution.latencies, evolution.leader) for i in cover):
        raise ValueError("a cover has candidates that do not exist")
    if any(len(individual.genome) != groups for individual in evolution.population):
        raise ValueError("a genome is of another length")


def _from_dict(data: dict[str, Any]) -> Evolution:
    version, internal, gauss = data["random"]
    rng = random.Random()
    rng.setstate((version, tuple(internal), gauss))
    return Evolution(
        seeds=tuple(Seed(str(seed["name"]), _cover(seed["cover"])) for seed in data["seeds"]),
        rng=rng,
        generation=int(data["generation"]),
        population=tuple(Individual(_genome(i["genome"]), _cover(i["cover"])) for i in data["population"]),
        latencies={_cover(entry["cover"]): _cost_from_dict(entry) for entry in data["latencies"]},
        leader=_cover(data["leader"]),
        stale=int(data["stale"]),
        memo_hits=int(data["memo_hits"]),
        passed_over=int(data["passed_over"]),
    )


def _cover(data: Any) -> Cover:
    return tuple(int(i) for i in data)


def _genome(data: Any) -> Genome:
    return tuple(Gene(str(backend), Link(link)) for backend, link in data)


def _cost_to_dict(cost: Cost) -> dict[str, Any]:
    """Seconds are null when Unknown and "invalid" when Invalid: JSON has neither NaN nor infinity."""
    seconds: float | str | None = cost.seconds
    if not cost.is_finite:
        seconds = "invalid" if cost.is_invalid else None
    return {"seconds": seconds, "spread": cost.spread, "samples": cost.samples, "reason": cost.reason}


def _cost_from_dict(data: dict[str, Any]) -> Cost:
    reason = str(data["reason"])
    if data["seconds"] is None:
        return Cost.unknown(reason)
    if data["seconds"] == "invalid":
        return Cost.invalid(reason)
    return Cost(float(data["seconds"]), float(data["spread"]), int(data["samples"]), reason)


def _unusable(path: Path, why: str) -> CollageError:
    return CollageError(f"the checkpoint {path} {why}: delete it to begin anew, or give another path")
