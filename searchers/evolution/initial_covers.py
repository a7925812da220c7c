"""Initial covers: evolution starts from them, and its result has to beat them.

1. Dijkstra's, which is best by additive cost and is the incumbent: it wins ties.
2. One per backend: its partitions are as few and as large as possible, and the backend of best priority runs what it
   does not take. That is the placement of a user who picks one backend by hand.
3. The next best few distinct covers: for each of the dearest partitions of Dijkstra's, the best cover in which another
   backend runs its nodes, or, if no other can, other partitions. (Lawler's k-best method leaves out *every* partition
   in turn, and only it; then the next best are the same placement, cut somewhere else, at a ten-thousandth of the
   cost.)
"""

from __future__ import annotations

from dataclasses import dataclass

from collage.graph.candidates import HOST
from collage.search import SearchProblem
from searchers.cover_search.objective import Objective
from searchers.evolution.cover_finder import Cover, CoverFinder

DIJKSTRA = "dijkstra"

#: How many partitions are left out, one by one, per cover that is wanted.
_TRIES = 3


@dataclass(frozen=True)
class InitialCover:
    """A cover, and its name in messages."""

    name: str
    cover: Cover


def make_initial_covers(
    problem: SearchProblem, objective: Objective, finder: CoverFinder, incumbent: Cover, distinct: int
) -> tuple[InitialCover, ...]:
    """The initial covers, Dijkstra's first, each once; `distinct` is how many of the third sort are wanted at most."""
    found = [InitialCover(DIJKSTRA, incumbent)]
    names = sorted({c.backend for c in objective.candidates if c.backend != HOST})
    found.extend(InitialCover(f"{name} alone", finder.best(_single(problem, objective, name))) for name in names)
    others = _next_best(objective, finder, incumbent, _TRIES * distinct)
    known = {initial.cover for initial in found}
    fresh = [cover for cover in others if cover not in known][:distinct]
    found.extend(InitialCover(f"next best {i + 1}", cover) for i, cover in enumerate(fresh))
    unique: dict[Cover, InitialCover] = {}
    for initial in found:
        unique.setdefault(initial.cover, initial)
    return tuple(unique.values())


def _single(problem: SearchProblem, objective: Objective, name: str) -> list[int]:
    """Penalties that count nodes of other backends first, those of better priority less, and then partitions."""
    ranks = {
        backend: rank
        for rank, backend in enumerate(
            sorted({c.backend for c in objective.candidates}, key=lambda b: (problem.priority(b), b)), start=1
        )
    }
    partitions = len(problem.nodes) + 1
    node = partitions * (len(ranks) + 1) * partitions
    penalties = []
    for candidate in objective.candidates:
        if candidate.backend == HOST:
            penalties.append(0)
        elif candidate.backend == name:
            penalties.append(1)
        else:
            size = len(candidate.sub_graph.inside)
            penalties.append(size * node + size * ranks[candidate.backend] * partitions + 1)
    return penalties


def _next_best(objective: Objective, finder: CoverFinder, best: Cover, tries: int) -> list[Cover]:
    """Distinct covers that each avoid one of the `tries` dearest partitions of `best`, by value."""
    used = [i for i in best if objective.candidates[i].backend != HOST]
    dearest = sorted(used, key=lambda i: (-objective.weights[i], i))[:tries]
    found: set[Cover] = set()
    for left_out in dearest:
        mine = objective.candidates[left_out]
        same = {
            i
            for i, c in enumerate(objective.candidates)
            if c.backend == mine.backend and not c.sub_graph.inside.isdisjoint(mine.sub_graph.inside)
        }
        for avoided in (same, {left_out}):
            cover = finder.best([int(i in avoided) for i in range(len(objective.candidates))])
            if avoided.isdisjoint(cover):
                found.add(cover)
                break
    return sorted(found, key=lambda cover: (finder.value(cover), cover))
