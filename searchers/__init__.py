"""Searchers that come with Collage, registered as plug-ins under the entry-point group `collage.searchers`.

A searcher depends on `collage.search` only, as a third party's would.

    dijkstra            the cover of least cost, exactly
    beam                the same search with a limited number of partial covers: for very wide and huge graphs
    evolutionary        runs whole placements end to end, and breeds new ones from the fast ones
    greedy              the cheapest candidate first: a baseline, and an example

Their parts, folder by folder:

cover_search
    objective           what better means: unknown costs, cost, ties, as one integer per candidate
    moves               candidates as steps over positions; the order in which nodes are covered
    bounds              a lower bound from shares of the cost per node
    edge_potentials     the same with transitions: a tight lower bound
    open_partitions     what keeps covers acyclic, and transitions paid once
    partial_covers      the states of the search: what a move leads to, and dominance
    layered_search      the search itself: layers, passes of growing width, budget
lazy
    costing             costing only what may be on the best path
    cost_bounds         what the rest costs at least, by the candidates that are costed
    predicted_bounds    the same by an estimator's intervals
evolution
    genome              a placement as preferences per group of nodes
    cover_finder        the legal cover that meets most preferences
    initial_covers      what an evolution starts from
    fitness             latencies of covers, and their order
    checkpoint          an evolution in a file
"""

from searchers.beam import BeamSearcher
from searchers.dijkstra import DijkstraSearcher
from searchers.evolutionary import EvolutionarySearcher
from searchers.greedy import GreedySearcher

__all__ = ["BeamSearcher", "DijkstraSearcher", "EvolutionarySearcher", "GreedySearcher"]
