"""What a searcher may know; coalescing, single-backend partitionings and thread pools around it."""

from collage.search.partitioning import Partitioning, execution_order
from collage.search.problem import SearchProblem
from collage.search.searcher import Searcher
from collage.search.tables import CostTable, LatencyTable

__all__ = ["CostTable", "LatencyTable", "Partitioning", "SearchProblem", "Searcher", "execution_order"]
