"""A decision as a plan's rows: the partitions that ship, and the transitions between them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from collage.confirm.decision import Decision
from collage.cost import Cost
from collage.graph.candidates import HOST, CandidatePartition
from collage.measure.workloads import WorkloadCosts
from collage.planned.data import PlannedPartition, PlannedTransition
from collage.transition import Pair, Transition


def planned_transitions(transitions: Mapping[Pair, Transition], used: Collection[str]) -> tuple[PlannedTransition, ...]:
    """Those between the backends that are used."""
    pairs = ((a, b) for a, b in transitions if a in used and b in used)
    return tuple(PlannedTransition(a, b, transitions[a, b]) for a, b in pairs)


def planned_partitions(decision: Decision, costs: WorkloadCosts) -> tuple[PlannedPartition, ...]:
    """The partitions that ship, each with the next best backend on the same nodes; () for TVM's own build."""
    problem = decision.problem
    same: dict[int, list[CandidatePartition]] = {}
    for candidate in problem.candidates:
        same.setdefault(candidate.sub_graph.inside.bits, []).append(candidate)
    planned = []
    for candidate in decision.shipped.candidates if decision.shipped is not None else ():
        inside = candidate.sub_graph.inside
        others = [c for c in same.get(inside.bits, []) if c.backend not in (candidate.backend, HOST)]
        # What a search did not cost is not measured for the table's sake.
        others = [c for c in others if costs.workload(c) in costs.asked]
        finite = [(problem.cost(c), c.backend) for c in others if problem.cost(c).is_finite]
        cost, runner_up = min(finite, key=lambda pair: pair[0].seconds, default=(Cost.unknown(), ""))
        planned.append(
            PlannedPartition(
                backend=candidate.backend,
                nodes=tuple(inside),
                operators=tuple(problem.graph.nodes[i].op for i in inside),
                composites=tuple((label, tuple(nodes)) for label, nodes in candidate.composites),
                cost=problem.cost(candidate),
                runner_up=runner_up,
                runner_up_cost=cost,
            )
        )
    return tuple(planned)
