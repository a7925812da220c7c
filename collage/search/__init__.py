"""What a searcher may know; coalescing, single-backend partitionings and thread pools around it."""

from collage.search.problem import Partitioning, Searcher, SearchProblem

__all__ = ["Partitioning", "SearchProblem", "Searcher"]
