"""Searcher: the base class of plug-ins of the group `collage.searchers` (RFC 0062, phase 3).

    class Greedy(Searcher):
        def search(self, problem):
            ...
            return problem.partitioning(chosen, notes=["greedy: not the optimum"])

Whatever its method, the result covers every node exactly once, its quotient graph is acyclic, no candidate in it is
Invalid, and the same problem gives the same answer. `collage.testing.searchers` has these conditions as tests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from collage.plugins import Parameterised
from collage.search.limit import Limit, WithinLimit
from collage.search.partitioning import Partitioning
from collage.search.problem import SearchProblem


class Searcher(Parameterised, ABC):
    """Finds a cover of small cost. Constructors store parameters and do nothing else."""

    @abstractmethod
    def search(self, problem: SearchProblem) -> Partitioning:
        """Return a legal cover.

        Raises
        ------
        NoCoverError
            No cover of finite cost exists; the message names the nodes that no backend can run.
        """

    def search_within(self, problem: SearchProblem, limit: Limit) -> WithinLimit | None:
        """A cover of small cost within a limit, and a bound of all such covers; None, as here, if the searcher has no
        search of this kind. Candidates that are not costed need not be looked at, and then nothing is proven.
        """
        return None
