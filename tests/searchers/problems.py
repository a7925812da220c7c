"""What the tests of searchers share is public, for third parties' searchers: `collage.testing.problems`."""

from collage.testing.problems import (
    best_value,
    candidate,
    covers,
    graph_of,
    is_lower_bound,
    problem_of,
    shape,
    value,
)

__all__ = ["best_value", "candidate", "covers", "graph_of", "is_lower_bound", "problem_of", "shape", "value"]
