"""Searchers that come with Collage, registered as plug-ins under the entry-point group `collage.searchers`.

A searcher is a module of its own that depends on `collage.search` only:

    dijkstra            the interface: problem in, partitioning out, and what it says about it
    objective           what better means: unknown costs, cost, ties, as one integer per candidate
    moves               candidates as steps over positions; the order in which nodes are covered
    bounds              a lower bound from shares of the cost per node
    open_partitions     what keeps covers acyclic, and transitions paid once
    layered_search      the search itself: layers, dominance, passes of growing width
"""

from searchers.dijkstra import DijkstraSearcher

__all__ = ["DijkstraSearcher"]
