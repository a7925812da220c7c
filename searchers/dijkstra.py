"""DijkstraSearcher: the cover of least cost, exactly, by shortest path over covered sets (RFC 0062, phase 3).

The method is in `searchers.cover_search.layered_search`; this module turns a `SearchProblem` into moves and the path
found into a `Partitioning`. A search that reaches its limit returns a cover that may not be optimal, and states how far
from the optimum it may be.

If costs are expensive to obtain, `costing="lazy"` asks only for those that may still matter (`searchers.lazy.costing`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from collage.errors import CollageError, NoCoverError
from collage.graph.candidates import HOST, CandidatePartition, covered
from collage.search import Partitioning, Searcher, SearchProblem
from collage.search.limit import Limit, WithinLimit
from searchers.cover_search.bounds import node_shares
from searchers.cover_search.label_search import LabelSearch
from searchers.cover_search.layered_search import Budget, LayeredSearch, Outcome
from searchers.cover_search.moves import Moves, make_moves
from searchers.cover_search.objective import Objective, make_objective
from searchers.lazy.cost_bounds import LearnedBounds
from searchers.lazy.costing import LazyCosts
from searchers.lazy.predicted_bounds import PredictedBounds

#: Partial covers kept per layer when looking for what else might be costed: no answer depends on it.
_EXPLORING_WIDTH = 4

#: A limit is so many powers of two of the units that are counted; and a picosecond, where a unit has a price.
_UNITS, _FINER = 44, 32


class DijkstraSearcher(Searcher):
    """Finds the cover of least cost; among equal ones fewer partitions, then backends of lower priority number.

    Candidates of unknown cost are used only where nothing of known cost gives a cover, ordered by declared priority;
    the notes say so.

    Parameters
    ----------
    time_limit_s
        Seconds that the search itself may take, after costing; None for no limit. The problem's own budget counts too.
        A first, narrow pass always ends, so that there is an answer. The cover of a search that is cut depends on the
        speed of the machine.
    max_states
        How many partial covers may be looked at, of a few hundred bytes each; deterministic. None for no limit.
    costing
        "eager" costs every candidate before the search. "lazy" costs, round by round, the candidates on the best path
        under lower bounds, and finds the same cover as long as the bounds hold. "auto" is lazy where the problem offers
        intervals (`SearchProblem.intervals`, `searchers.lazy.predicted_bounds`), and eager otherwise. The notes say how
        much was costed. All rounds share the limits of one search. The answer's `lower_bound` assumes nothing: costs
        that are not known count as zero.
    bound_margin
        Only for lazy costing without intervals: share by which a candidate may be cheaper than expected from similar
        ones and still be found (`searchers.lazy.cost_bounds`). 1 assumes nothing and costs nearly everything.
    max_share
        Only for lazy costing without intervals: once a cover is found at the margin, the margin is widened until this
        share of the distinct workloads is costed.
    tolerance
        Only for lazy costing with intervals: candidates are not costed if they could make the best costed cover cheaper
        by no more than this share. Measurements do not repeat more exactly. 0 costs all that could be cheaper at all.
    patience
        Only for lazy costing with intervals: nothing more is costed when so many distinct workloads in a row, which
        wider bounds called for, have made the best costed cover cheaper by no more than the tolerance; None costs on.
    """

    def __init__(
        self,
        time_limit_s: float | None = 60.0,
        max_states: int | None = 1_000_000,
        costing: Literal["auto", "eager", "lazy"] = "auto",
        bound_margin: float = 0.15,
        max_share: float = 0.5,
        tolerance: float = 0.01,
        patience: int | None = 64,
    ) -> None:
        self.time_limit_s = time_limit_s
        self.max_states = max_states
        self.costing = costing
        self.bound_margin = bound_margin
        self.max_share = max_share
        self.tolerance = tolerance
        self.patience = patience

    def search(self, problem: SearchProblem) -> Partitioning:
        if self.costing not in ("auto", "eager", "lazy"):
            raise ValueError(f'costing is "auto", "eager" or "lazy", not {self.costing!r}')
        problem.require_coverable()
        lazy = self._lazy_costs(problem)
        if lazy is not None:
            return self.search_lazily(problem, lazy)
        candidates = list(problem.candidates)
        costs = problem.costs(candidates)
        problem.require_runnable(costs=dict(zip(candidates, costs, strict=True)))
        return self.solve(problem, make_objective(problem, candidates, costs))

    def solve(self, problem: SearchProblem, objective: Objective) -> Partitioning:
        """The best cover for given weights; `search` calls it once, with the cost of every candidate."""
        moves = make_moves(problem.graph, objective)
        outcome = LayeredSearch(moves, self._budget(problem), problem.progress).run()
        return self._answer(problem, objective, moves, outcome)

    def search_within(self, problem: SearchProblem, limit: Limit) -> WithinLimit:
        """Labels of two dimensions over the same states (`searchers.cover_search.label_search`), of what is costed."""
        allowed = [c for c in problem.candidates if limit.used(c) <= limit.most and math.isfinite(limit.used(c))]
        if problem.nodes - covered(allowed):
            return WithinLimit(None, limit.below)
        known = {c: cost for c in allowed if (cost := problem.known(c)) is not None and not cost.is_unknown}
        complete = len(known) == len(allowed)
        if problem.nodes - covered(c for c, cost in known.items() if cost.is_finite):
            return WithinLimit(None, limit.below if complete else 0.0)
        objective = make_objective(problem, list(known), list(known.values())).finer(_FINER)
        exponent = math.frexp(limit.most)[1] - _UNITS if 0 < limit.most < math.inf else 0
        # Whole units, rounded down: what is within the limit stays so.
        used = [math.floor(math.ldexp(limit.used(c), -exponent)) for c in objective.candidates]
        most = sum(used) if math.isinf(limit.most) else math.floor(math.ldexp(limit.most, -exponent))
        price = objective.packed_price(limit.price, exponent)
        below = None if math.isinf(limit.below) else objective.packed(limit.below)
        moves = make_moves(problem.graph, objective, used)
        outcome = LabelSearch(moves, price, most, below, self._budget(problem), problem.progress).run()
        chosen = [objective.candidates[i] for i in outcome.chosen]
        found = problem.partitioning(chosen) if chosen else None
        bound = limit.below if found is None else min(limit.below, found.cost.seconds)
        if not outcome.exact:
            proven = 0 if outcome.lower_bound is None else outcome.lower_bound - price * most
            bound = min(bound, objective.seconds(proven))
        return WithinLimit(found, bound if complete else 0.0)

    def search_lazily(self, problem: SearchProblem, costs: LazyCosts) -> Partitioning:
        """The best cover, with no more costed than is needed to know it, if the bounds of `costs` hold; then the best
        of what wider bounds lead to.
        """
        budget = self._budget(problem)
        todo: list[CandidatePartition] = []
        path: list[CandidatePartition] = []
        late: Partitioning | None = None
        while True:
            began = time.monotonic()
            if todo:
                costs.cost(todo)
                costs.pay(path)
            else:
                costs.start()
            # The time limit is for searching, the problem's budget for all.
            now = time.monotonic()
            budget.deadline = min(budget.deadline + now - began, now + problem.time_left)
            if todo and budget.spent:
                late = self._best_costed(problem, costs, budget)
                if late is not None:
                    break
            weights = costs.weights()
            problem.require_runnable(costs=dict(zip(costs.candidates, weights, strict=True)))
            objective = make_objective(problem, costs.candidates, weights)
            moves = make_moves(problem.graph, objective)
            outcome = LayeredSearch(moves, budget, problem.progress).run()
            path = [objective.candidates[i] for i in outcome.chosen]
            todo = costs.batch(path)
            if not todo or _tolerates(costs, objective, outcome):
                break
        proven: float | None = None
        if late is not None:
            found = late
        else:
            costs.pay(path)
            answer = None if todo else self._answer(problem, objective, moves, outcome)
            proven = answer.lower_bound if answer is not None and costs.proven else None
            further = outcome.exact and self._look_further(problem, costs, budget)
            best = self._best_costed(problem, costs, budget) if answer is None or further else None
            found = best or answer or self._answer(problem, objective, moves, outcome)
        if proven is None:
            proven = _proven_bound(problem, costs)
        bound = proven if found.cost.is_unknown else min(proven, found.cost.seconds)
        return replace(found, lower_bound=bound, notes=(*found.notes, *costs.notes()))

    def _lazy_costs(self, problem: SearchProblem) -> LazyCosts | None:
        """How to cost lazily; None for costing eagerly."""
        if self.costing == "eager":
            return None
        predicted = PredictedBounds.of(problem)
        if predicted is not None:
            return LazyCosts(problem, predicted, 1.0, self.tolerance, self.patience)
        if self.costing == "auto":
            return None
        return LazyCosts(problem, LearnedBounds(problem, self.bound_margin), self.max_share)

    def _look_further(self, problem: SearchProblem, costs: LazyCosts, budget: Budget) -> bool:
        """Cost what wider bounds put on the best path, while there is time and it gains something; whether anything was
        costed.

        Narrow searches find most of it. A narrow search may overlook the best path, so where all may be costed the last
        ones are exact.
        """
        rounds = costs.rounds
        while not budget.spent and costs.widen():
            self._cost_best_path(problem, costs, budget, _narrow(budget))
        if costs.unlimited and not budget.spent and self._cost_best_path(problem, costs, budget, budget):
            costs.confirm()
        return costs.rounds > rounds

    def _cost_best_path(self, problem: SearchProblem, costs: LazyCosts, budget: Budget, effort: Budget) -> bool:
        """Cost what is on the best path until all of it is, while there is time; whether the path is known to be the
        best.
        """
        while not budget.spent:
            objective = make_objective(problem, costs.candidates, costs.weights())
            outcome = LayeredSearch(make_moves(problem.graph, objective), effort).run()
            path = [objective.candidates[i] for i in outcome.chosen]
            todo = costs.batch(path, limited=True)
            if not todo or _tolerates(costs, objective, outcome):
                return outcome.exact and costs.unlimited
            began = time.monotonic()
            costs.cost(todo)
            costs.pay(path)
            budget.deadline += time.monotonic() - began
            if costs.is_check_due:
                costs.check(self._least_costed(problem, costs, budget))
        return False

    def _least_costed(self, problem: SearchProblem, costs: LazyCosts, budget: Budget) -> float:
        """Seconds of the best cover of all that was costed, by a narrow search; infinite where it finds none."""
        objective = make_objective(problem, costs.candidates, costs.costed_weights(predicted=False))
        outcome = LayeredSearch(make_moves(problem.graph, objective), _narrow(budget)).run()
        return math.inf if outcome.value is None or objective.unknown else objective.seconds(outcome.value)

    def _best_costed(self, problem: SearchProblem, costs: LazyCosts, budget: Budget) -> Partitioning | None:
        """The best cover of all that was costed; where there is none, of what is predicted as well, or None."""
        for predicted in (False, True):
            objective = make_objective(problem, costs.candidates, costs.costed_weights(predicted))
            moves = make_moves(problem.graph, objective)
            outcome = LayeredSearch(moves, budget, problem.progress).run()
            if outcome.value is not None:
                return self._answer(problem, objective, moves, outcome)
        return None

    def _answer(self, problem: SearchProblem, objective: Objective, moves: Moves, outcome: Outcome) -> Partitioning:
        """The cover of an outcome, with its bound and notes."""
        if outcome.value is None or outcome.lower_bound is None:
            raise _no_cover(problem, outcome, moves.layout.order)
        chosen = [objective.candidates[i] for i in outcome.chosen]
        found = problem.partitioning(chosen)
        lower_bound = objective.seconds(outcome.lower_bound)
        if objective.unknown:
            # Known costs came first above; a bound on *any* cover has to allow that what is unknown costs nothing.
            anything = make_moves(problem.graph, replace(objective, weights=objective.relaxed))
            lower_bound = objective.seconds(sum(node_shares(anything)))
        elif outcome.exact:
            lower_bound = found.cost.seconds
        return replace(
            found,
            lower_bound=lower_bound if found.cost.is_unknown else min(lower_bound, found.cost.seconds),
            notes=tuple(self._notes(problem, objective, outcome, found, lower_bound)),
        )

    def _budget(self, problem: SearchProblem) -> Budget:
        seconds = min(self.time_limit_s if self.time_limit_s is not None else float("inf"), problem.time_left)
        states = self.max_states if self.max_states is not None else 1 << 62
        return Budget(deadline=time.monotonic() + seconds, states=states, tighten=True)

    def _notes(
        self, problem: SearchProblem, objective: Objective, outcome: Outcome, found: Partitioning, lower_bound: float
    ) -> list[str]:
        notes = []
        if objective.unknown:
            notes.append(
                f"{objective.unknown} candidates are of unknown cost: they were ordered by the backends' declared "
                "priority, after every candidate of known cost"
            )
        notes.extend(found.notes)
        if not outcome.exact:
            gap = (
                ""
                if found.cost.is_unknown
                else f"; it is at most {found.cost.seconds - lower_bound:.4g} s above the optimum"
            )
            notes.append(
                f"the search budget was spent after {outcome.expanded} states: this is the best cover found yet{gap}"
            )
        return notes


def _narrow(budget: Budget) -> Budget:
    """For a search that no answer depends on, within what is left of the budget."""
    return replace(budget, width=_EXPLORING_WIDTH, look_ahead=0, tighten=False)


def _tolerates(costs: LazyCosts, objective: Objective, outcome: Outcome) -> bool:
    """Whether the best path, of what is costed and what may be, is no better than one that is costed."""
    return outcome.value is not None and not objective.unknown and costs.tolerates(objective.seconds(outcome.value))


def _proven_bound(problem: SearchProblem, costs: LazyCosts) -> float:
    """Seconds that no cover costs less than, whatever the candidates cost that were not costed."""
    objective = make_objective(problem, costs.candidates, costs.free_weights())
    anything = replace(objective, weights=objective.relaxed)
    return objective.seconds(sum(node_shares(make_moves(problem.graph, anything))))


def _no_cover(problem: SearchProblem, outcome: Outcome, order: Sequence[int]) -> CollageError:
    stuck = problem.graph.nodes[order[outcome.furthest]]
    at = f"{stuck.op} (node {stuck.index})"
    if outcome.exact:
        backends = sorted({c.backend for c in problem.candidates if c.backend != HOST})
        return NoCoverError(
            f"no choice of candidates of {', '.join(backends)} covers the network without overlap and without a cycle; "
            f"the search got as far as {at}: add a backend that can run it on its own"
        )
    return CollageError(
        f"the search budget was spent after {outcome.expanded} states, before any cover was found; "
        f"it got as far as {at}: raise `time_limit_s` and `max_states`"
    )
