"""Cost bounds: the least that a candidate that was not costed may be assumed to cost, from those that were.

A backend charges for every call, whatever is in it: its *overhead* is the cost that it was seen to have for the node
that takes least on its own (zero until then). The rest of a cost is the *work* of its nodes. Two assumptions about one
backend follow, each with a safety margin (a share `margin` of the cost):

* *Growth*: a candidate costs at least what any part of it costs. More work is not done in less time.
* *Shares*: a candidate costs at least one overhead and its share of the work of the costed candidates that it overlaps.
  Every node has a price: its share of the work of the largest costed candidate that contains it, in proportion to what
  its nodes take on their own, less the overhead (on whichever backend costed them first). In other words: a backend is
  not faster on a fragment than on the whole.

Neither is a theorem: a backend may have a bad kernel for one operator and a good one for it and its neighbour, and
measurements scatter. Recorded costs do break both. A violation beyond the margin matters only if it hides a candidate
of the best cover (`benchmarks.lazy_costing` shows how often, and the loss). So nothing is reported as proven by them,
and the margin is widened as far as there are costs to spend. With margin 1 every bound is zero, nothing is assumed, and
nearly everything is costed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Protocol

from collage.cost.cost import Cost
from collage.graph.candidates import HOST, CandidatePartition
from collage.search import SearchProblem

#: By how much a margin is widened at a time.
_STEP = 0.1
#: The least share of what a node takes on its own that is work: a cost that is all overhead says nothing about it.
_LEAST_WORK = 0.02


class CostBounds(Protocol):
    """Lower bounds that become tighter as costs become known."""

    @property
    def proven(self) -> bool:
        """Whether they hold without any assumption, so that what follows from them may be reported as proven."""

    @property
    def spent(self) -> bool:
        """Whether asking for more costs is of no use: the estimator knows no more than the bounds do."""

    @property
    def assumption(self) -> str:
        """One line for the user: what the answer relies on."""

    def first(self) -> list[CandidatePartition]:
        """What is to be costed before there is any bound."""

    def learn(self, costs: Mapping[CandidatePartition, Cost]) -> None:
        """Take in costs of candidates that were not known before."""

    def seconds(self, candidate: CandidatePartition) -> float:
        """What the candidate costs at least, in seconds; 0 where nothing is known of its like."""

    def uncertainty(self, candidate: CandidatePartition) -> float:
        """How much, in seconds, the cost of a candidate may be off."""

    def widen(self) -> bool:
        """Assume less from now on; False when there is nothing left to assume."""

    def confirm(self) -> None:
        """Take notice that an exact search under these bounds asked for nothing more."""


class LearnedBounds:
    """Bounds by growth and by shares.

    Parameters
    ----------
    problem
        Whose candidates are to be bounded; no cost is asked for here.
    margin
        By which share of the bound a candidate may be cheaper and still be found; between 0 and 1.
    """

    proven = False
    spent = False

    def __init__(self, problem: SearchProblem, margin: float) -> None:
        if not 0 <= margin <= 1:
            raise ValueError(f"the margin of cost bounds is a share between 0 and 1, not {margin}")
        self.problem = problem
        self.margin = margin
        self._widened = margin
        self._by_backend: dict[str, list[CandidatePartition]] = defaultdict(list)
        for candidate in problem.candidates:
            if candidate.backend != HOST:
                self._by_backend[candidate.backend].append(candidate)
        self._alone: dict[int, dict[str, float]] = {}
        self._overhead: Mapping[str, float] = {}
        self._work: dict[int, float] = {}
        self._price: dict[tuple[str, int], tuple[int, float]] = {}
        self._costliest_part: dict[CandidatePartition, float] = {}

    @property
    def assumption(self) -> str:
        wider = f"; then looked further, up to a margin of {self._widened:.0%}" if self._widened > self.margin else ""
        return (
            "assumed: on one backend, a candidate costs at least what a part of it costs, and at least its share of "
            f"larger ones, less {self.margin:.0%}{wider}"
        )

    def first(self) -> list[CandidatePartition]:
        """Every node alone, on its most preferred backend; and of every backend its largest, disjoint candidates."""
        alone: dict[int, CandidatePartition] = {}
        largest: list[CandidatePartition] = []
        for backend in sorted(self._by_backend, key=lambda name: (self.problem.priority(name), name)):
            left = self.problem.nodes.bits
            for candidate in sorted(self._by_backend[backend], key=largest_first):
                inside = candidate.sub_graph.inside
                if len(inside) == 1:
                    alone.setdefault(inside.first, candidate)
                if inside.bits & ~left == 0:
                    largest.append(candidate)
                    left &= ~inside.bits
        return list(dict.fromkeys([*(alone[node] for node in sorted(alone)), *largest]))

    def learn(self, costs: Mapping[CandidatePartition, Cost]) -> None:
        finite = {c: cost.seconds for c, cost in costs.items() if cost.is_finite and c.backend != HOST}
        # The most preferred backend first, so that the work of all nodes is by one clock if it can be.
        singles = [c for c in finite if len(c.sub_graph.inside) == 1]
        singles.sort(key=lambda c: (self.problem.priority(c.backend), c.backend))
        for candidate in singles:
            self._alone.setdefault(candidate.sub_graph.inside.first, {})[candidate.backend] = finite[candidate]
        if self._alone:
            least = min(self._alone, key=lambda node: next(iter(self._alone[node].values())))
            self._overhead = self._alone[least]
        for candidate in singles:
            alone = finite[candidate]
            work = max(alone - self._overhead.get(candidate.backend, 0.0), _LEAST_WORK * alone)
            self._work.setdefault(candidate.sub_graph.inside.first, work)
        parts: dict[tuple[str, int], float] = {}
        for candidate, seconds in finite.items():
            self._set_prices(candidate, max(0.0, seconds - self._overhead.get(candidate.backend, 0.0)))
            part = (candidate.backend, candidate.sub_graph.inside.bits)
            parts[part] = max(seconds, parts.get(part, 0.0))
        for (backend, bits), seconds in parts.items():
            for candidate in self._by_backend[backend]:
                inside = candidate.sub_graph.inside.bits
                if inside & bits == bits and seconds > self._costliest_part.get(candidate, 0.0):
                    self._costliest_part[candidate] = seconds

    def seconds(self, candidate: CandidatePartition) -> float:
        backend = candidate.backend
        prices = (self._price.get((backend, node), (0, 0.0))[1] for node in candidate.sub_graph.inside)
        shares = self._overhead.get(backend, 0.0) + sum(prices)
        return (1.0 - self._widened) * max(shares, self._costliest_part.get(candidate, 0.0))

    def uncertainty(self, candidate: CandidatePartition) -> float:
        """The same for all: nothing is known of any."""
        return 1.0

    def widen(self) -> bool:
        """A tenth more."""
        if self._widened >= 1.0:
            return False
        self._widened = min(1.0, self._widened + _STEP)
        return True

    def confirm(self) -> None:
        """The assumption is stated either way."""

    def _set_prices(self, candidate: CandidatePartition, seconds: float) -> None:
        inside = candidate.sub_graph.inside
        work = sum(self._work.get(node, 0.0) for node in inside)
        if work <= 0:
            return
        for node in inside:
            price = seconds * self._work.get(node, 0.0) / work
            size, known = self._price.get((candidate.backend, node), (0, 0.0))
            if len(inside) > size or (len(inside) == size and price > known):
                self._price[candidate.backend, node] = (len(inside), price)


def largest_first(candidate: CandidatePartition) -> tuple[object, ...]:
    """A key that sorts larger candidates first, and leaves nothing to chance."""
    labels = tuple((label, nodes.bits) for label, nodes in candidate.composites)
    return (-len(candidate.sub_graph.inside), candidate.sub_graph.inside.bits, labels)
