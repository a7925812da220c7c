"""What the tests of searchers share is public, for third parties' searchers: `collage.testing.problems`."""

from collections.abc import Sequence

from collage.cost.cost import Cost
from collage.graph.candidates import CandidatePartition
from collage.search import SearchProblem
from collage.testing.problems import (
    Given,
    best_value,
    candidate,
    covers,
    graph_of,
    is_lower_bound,
    problem_of,
    shape,
    value,
)

__all__ = [
    "best_value",
    "candidate",
    "covers",
    "graph_of",
    "is_lower_bound",
    "problem_of",
    "shape",
    "true_costs",
    "value",
    "watched",
]


def watched(problem: SearchProblem) -> list[list[CandidatePartition]]:
    """The batches that the problem's estimator is asked for from now on."""
    batches: list[list[CandidatePartition]] = []
    estimate = problem.cost_table.estimate

    def watch(asked: Sequence[CandidatePartition]) -> Sequence[Cost]:
        batches.append(list(asked))
        return estimate(asked)

    problem.cost_table.estimate = watch
    return batches


def true_costs(given_: Given) -> dict[CandidatePartition, Cost]:
    return {c: x if isinstance(x, Cost) else Cost(x) for c, x in given_.costs.items()}
