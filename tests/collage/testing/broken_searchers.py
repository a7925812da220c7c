"""Searchers that are wrong in one way each."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace

from collage.cost.cost import Cost
from collage.errors import CollageError, NoCoverError
from collage.graph.candidates import CandidatePartition
from collage.graph.index_set import IndexSet
from collage.search import Partitioning, Searcher, SearchProblem
from searchers.dijkstra import DijkstraSearcher


class Greedy(Searcher):
    """Takes the first of what `better` prefers, front to back; right, but for what subclasses do to it."""

    def search(self, problem: SearchProblem) -> Partitioning:
        problem.require_coverable()
        covered, chosen = IndexSet(), []
        for node in problem.nodes:
            if node not in covered:
                able = [c for c in problem.candidates.starting_at(node) if self.may(problem, c, covered)]
                if not able:
                    problem.require_runnable(IndexSet([node]))
                    raise CollageError(f"nothing that fits starts at node {node}")
                chosen.append(self.pick(problem, able))
                covered = covered | chosen[-1].sub_graph.inside
        return self.finish(problem, chosen)

    def may(self, problem: SearchProblem, c: CandidatePartition, covered: IndexSet) -> bool:
        ready = all(i in covered for i in c.sub_graph.inputs if i in problem.nodes)
        return ready and c.sub_graph.inside.isdisjoint(covered) and problem.cost(c).is_finite

    def pick(self, problem: SearchProblem, able: Sequence[CandidatePartition]) -> CandidatePartition:
        return min(able, key=lambda c: (problem.cost(c).seconds, problem.priority(c.backend), str(c)))

    def finish(self, problem: SearchProblem, chosen: list[CandidatePartition]) -> Partitioning:
        return problem.partitioning(chosen)


class TakesCycles(Greedy):
    """Disjoint candidates, largest first, whatever they need of each other."""

    def search(self, problem: SearchProblem) -> Partitioning:
        chosen: list[CandidatePartition] = []
        covered = IndexSet()
        for c in sorted(problem.candidates, key=lambda c: (-len(c.sub_graph.inside), str(c))):
            if c.sub_graph.inside.isdisjoint(covered) and problem.cost(c).is_finite:
                chosen.append(c)
                covered = covered | c.sub_graph.inside
        return Partitioning(tuple(chosen), Cost(sum(problem.cost(c).seconds for c in chosen)))


class FollowsHashes(Greedy):
    def pick(self, problem: SearchProblem, able: Sequence[CandidatePartition]) -> CandidatePartition:
        return min(able, key=lambda c: hash(str(c)))


class FollowsOrder(Greedy):
    def pick(self, problem: SearchProblem, able: Sequence[CandidatePartition]) -> CandidatePartition:
        return able[0]


class ThrowsDice(Greedy):
    def pick(self, problem: SearchProblem, able: Sequence[CandidatePartition]) -> CandidatePartition:
        return random.choice(able)


class TakesInvalid(Greedy):
    def may(self, problem: SearchProblem, c: CandidatePartition, covered: IndexSet) -> bool:
        ready = all(i in covered for i in c.sub_graph.inputs if i in problem.nodes)
        return ready and c.sub_graph.inside.isdisjoint(covered)

    def pick(self, problem: SearchProblem, able: Sequence[CandidatePartition]) -> CandidatePartition:
        return max(able, key=lambda c: (len(c.sub_graph.inside), str(c)))


class LeavesNodesOut(Greedy):
    def finish(self, problem: SearchProblem, chosen: list[CandidatePartition]) -> Partitioning:
        return Partitioning(tuple(chosen[:-1]), Cost(0.0))


class RunsBackwards(Greedy):
    def finish(self, problem: SearchProblem, chosen: list[CandidatePartition]) -> Partitioning:
        found = problem.partitioning(chosen)
        return replace(found, candidates=found.candidates[::-1])


class ForgetsTransitions(DijkstraSearcher):
    def search(self, problem: SearchProblem) -> Partitioning:
        found = super().search(problem)
        return replace(found, cost=Cost(sum(problem.cost(c).seconds for c in found.candidates)), lower_bound=0.0)


class BoastsOfItsBound(Greedy):
    def finish(self, problem: SearchProblem, chosen: list[CandidatePartition]) -> Partitioning:
        found = problem.partitioning(chosen)
        return replace(found, lower_bound=found.cost.seconds)


class SilentOnUnknown(DijkstraSearcher):
    def search(self, problem: SearchProblem) -> Partitioning:
        return replace(super().search(problem), notes=())


class DeniesCovers(Greedy):
    def search(self, problem: SearchProblem) -> Partitioning:
        raise NoCoverError("relu (node 1) and my.sort (node 1) are too hard")


class NamesNobody(DijkstraSearcher):
    def search(self, problem: SearchProblem) -> Partitioning:
        try:
            return super().search(problem)
        except NoCoverError:
            raise NoCoverError("there is no cover") from None


class Hangs(Greedy):
    def search(self, problem: SearchProblem) -> Partitioning:
        while True:
            time.sleep(0.01)


class ChangesTheProblem(Greedy):
    def finish(self, problem: SearchProblem, chosen: list[CandidatePartition]) -> Partitioning:
        found = problem.partitioning(chosen)
        problem.transitions.clear()  # type: ignore[attr-defined]
        return found


class RemembersTheLast(Greedy):
    """Answers every further problem of as many nodes with its first answer's notes."""

    def search(self, problem: SearchProblem) -> Partitioning:
        self.count = getattr(self, "count", 0) + 1
        return replace(super().search(problem), notes=(f"search {self.count}",))


class HoldsALambda(Greedy):
    def __init__(self) -> None:
        self.key = lambda c: str(c)


class ChangesItsParameter(Greedy):
    def __init__(self, widths: tuple[int, ...] = (1, 2)) -> None:
        self.widths = list(widths)


class TakesAnything(Greedy):
    def __init__(self, **options: int) -> None:
        self.options = options
