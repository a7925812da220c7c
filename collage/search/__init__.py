"""All that a searcher may know, and what is done to the problems that it is given."""

from collage.search.problem import Partitioning, Searcher, SearchProblem

__all__ = ["Partitioning", "SearchProblem", "Searcher"]
