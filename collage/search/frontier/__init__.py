"""The frontier of latency and error: the covers worth having under error budgets, and what is proven of them."""

from collage.search.frontier.points import Frontier, FrontierPoint
from collage.search.frontier.search import frontier

__all__ = ["Frontier", "FrontierPoint", "frontier"]
