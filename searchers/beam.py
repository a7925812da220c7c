"""BeamSearcher: Dijkstra's search that keeps only the best partial covers, for very wide and for huge networks.

The exact search (`searchers.dijkstra`) may need exponentially many states where many branches run side by side. A beam
keeps at most `width` of them per layer (Lowerre, *The Harpy Speech Recognition System*, 1976), so its time grows
linearly with the network, whatever its shape. All else is shared with `DijkstraSearcher`: objective, ties, unknown
costs, notes. The partial covers that the beam cut off give a lower bound on every cover, so the answer says how far
from the optimum it may be. If no cut was needed, or the bound reaches the cover's value, the answer is optimal.

States are ranked by cost so far plus the lower bound of the rest, as in A*. With `look_ahead` = k, the states of a
layer that is cut are ranked by the least value of this kind that they can reach in k further moves, over all such
moves. That is a tighter lower bound on the covers that follow from a state, and the proven gap rests on it. A state
that k moves cannot continue is dropped as a dead end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from collage.search import Partitioning, SearchProblem
from searchers.cover_search.layered_search import Budget, Outcome
from searchers.cover_search.objective import Objective
from searchers.dijkstra import DijkstraSearcher


class BeamSearcher(DijkstraSearcher):
    """Finds a cover of small cost with a proven gap, in time linear in the size of the network.

    A beam in which every state comes to a dead end is widened until there is a cover, or nothing is left to be cut and
    there is none.

    Parameters
    ----------
    width
        Partial covers kept per layer, at least 1. None keeps all: then it is `DijkstraSearcher`.
    look_ahead
        Further moves by which states are ranked where a layer is cut, at least 0; each multiplies the time of a cut by
        the number of moves to choose from. Without effect when `width` is None, where what is cut comes back.
    time_limit_s
        Seconds that the search itself may take, after costing; the problem's own budget counts too. None for no limit.
        As in `DijkstraSearcher`, a first, narrow pass always ends, so that there is an answer.
    max_states
        How many partial covers may be looked at; deterministic, unlike a time limit. None for no limit.
    """

    # A beam has no parameters for these; with intervals it costs lazily, as `DijkstraSearcher` does.
    costing: Literal["auto", "eager", "lazy"] = "auto"
    bound_margin: float = 0.15
    max_share: float = 0.5

    def __init__(
        self,
        width: int | None = 1024,
        look_ahead: int = 0,
        time_limit_s: float | None = 60.0,
        max_states: int | None = None,
    ) -> None:
        self.width = width
        self.look_ahead = look_ahead
        self.time_limit_s = time_limit_s
        self.max_states = max_states

    def search(self, problem: SearchProblem) -> Partitioning:
        """Return a legal cover.

        Raises
        ------
        ValueError
            `width` is below 1 or `look_ahead` below 0.
        NoCoverError
            No cover of finite cost exists; the message names the nodes that no backend can run.
        CollageError
            Every beam came to a dead end until the budget was spent.
        """
        if (self.width is not None and self.width < 1) or self.look_ahead < 0:
            raise ValueError(f"{self!r}: `width` must be at least 1, or None, and `look_ahead` at least 0")
        return super().search(problem)

    def _budget(self, problem: SearchProblem) -> Budget:
        budget = super()._budget(problem)
        return replace(budget, width=self.width, look_ahead=0 if self.width is None else self.look_ahead)

    def _notes(
        self, problem: SearchProblem, objective: Objective, outcome: Outcome, found: Partitioning, lower_bound: float
    ) -> list[str]:
        if outcome.exact or self.width is None:
            return super()._notes(problem, objective, outcome, found, lower_bound)
        notes = super()._notes(problem, objective, replace(outcome, exact=True), found, lower_bound)
        proven = (
            ""
            if found.cost.is_unknown
            else f": it is at most {found.cost.seconds - lower_bound:.4g} s above the optimum"
        )
        more = "a greater budget or `width`" if outcome.spent else "a greater `width`"
        notes.append(
            f"beam search kept the best {outcome.width} partial covers of every layer and looked at "
            f"{outcome.expanded}{proven}; {more} may find a better cover"
        )
        return notes
