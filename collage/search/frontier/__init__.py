"""The frontier of latency and error: the best covers under error budgets, and bounds of all other covers."""

from collage.search.frontier.gaps import Closing
from collage.search.frontier.points import Frontier, FrontierPoint
from collage.search.frontier.search import frontier

__all__ = ["Closing", "Frontier", "FrontierPoint", "frontier"]
