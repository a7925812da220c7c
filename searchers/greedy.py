"""GreedySearcher: the cheapest candidate first. It is a baseline, and the example for other searchers."""

from __future__ import annotations

from collage.errors import CollageError
from collage.graph.index_set import IndexSet
from collage.search import Partitioning, Searcher, SearchProblem


class GreedySearcher(Searcher):
    """From the front of the network on: the cheapest candidate per node, of those whose inputs are covered.

    What it loses to `DijkstraSearcher` is what a choice costs that looks at one partition at a time: transitions and
    what a partition leaves for those behind it do not count. Candidates that wait for each other are never chosen,
    so the cover is acyclic.
    """

    def search(self, problem: SearchProblem) -> Partitioning:
        """Return a legal cover.

        Raises
        ------
        NoCoverError
            Every candidate of some node is Invalid, or there is none.
        CollageError
            Nothing that fits to what is chosen covers the next node; another searcher may find a cover.
        """
        problem.require_coverable()
        covered, chosen = IndexSet(), []
        for node in problem.nodes:
            if node in covered:
                continue
            free = [c for c in problem.candidates.starting_at(node) if c.sub_graph.inside.isdisjoint(covered)]
            best = problem.best(c for c in free if c.sub_graph.inputs & problem.nodes <= covered)
            if best is None:
                problem.require_runnable(IndexSet([node]))
                raise CollageError(f"greedy: no candidate that fits starts at node {node}: search with `dijkstra`")
            chosen.append(best)
            covered = covered | best.sub_graph.inside
        return problem.partitioning(chosen, notes=["greedy search: not the optimum"])
