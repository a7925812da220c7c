"""Searchers that come with Collage, registered as plug-ins under the entry-point group `collage.searchers`.

A searcher depends on `collage.search` only, as a third party's would.

    dijkstra            the cover of least cost, exactly
    beam                the best covers half-built, so many at a time: for wide graphs and huge ones
    evolutionary        whole placements run end to end, and bred from those that run fast
    greedy              the cheapest candidate first: a baseline, and the model for others

What they are made of:

    objective           what better means: unknown costs, cost, ties, as one integer per candidate
    moves               candidates as steps over positions; the order in which nodes are covered
    bounds              a lower bound from shares of the cost per node
    edge_potentials     the same with transitions: a tight lower bound
    open_partitions     what keeps covers acyclic, and transitions paid once
    half_covers         the states of the search: what a move leads to, and dominance
    layered_search      the search itself: layers, passes of growing width, budget
    lazy_costing        costing only what may be on the best path
    cost_bounds, predicted_bounds       what the rest costs at least: by those that are costed, or by an estimator
    genome, cover_finder, seeds, fitness, checkpoint, evolution_notes       the parts of an evolution
"""

from searchers.beam import BeamSearcher
from searchers.dijkstra import DijkstraSearcher
from searchers.evolutionary import EvolutionarySearcher
from searchers.greedy import GreedySearcher

__all__ = ["BeamSearcher", "DijkstraSearcher", "EvolutionarySearcher", "GreedySearcher"]
