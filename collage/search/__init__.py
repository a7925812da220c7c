"""The search problem that a searcher is given, and what goes on around searchers.

That is coalescing, the baselines on single backends, and the backends that share a thread pool.
"""

from collage.search.partitioning import Partitioning, execution_order
from collage.search.problem import SearchProblem
from collage.search.searcher import Searcher
from collage.search.tables import CostTable, LatencyTable

__all__ = ["CostTable", "LatencyTable", "Partitioning", "SearchProblem", "Searcher", "execution_order"]
