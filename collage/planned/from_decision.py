"""From a `Decision` to the rows of a plan: partitions, transitions, copies, the frontier of an error budget."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from collage.accuracy.budget import ErrorBudget
from collage.annotations.precision import FLOAT32, INT8, UNKNOWN
from collage.backends.base import Backend
from collage.compile.rewrite import file_partition
from collage.confirm.decision import Decision
from collage.confirm.within_budget import Within
from collage.cost.cost import Cost
from collage.cost.transition import Pair, Transition
from collage.graph.candidates import HOST, CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.kinds import NodeKind
from collage.measure.workloads import WorkloadCosts
from collage.planned.data import PlannedAccuracy, PlannedCopy, PlannedPartition, PlannedPoint, PlannedTransition
from collage.search import Partitioning


def planned_transitions(transitions: Mapping[Pair, Transition], used: Collection[str]) -> tuple[PlannedTransition, ...]:
    """The transitions between the backends that are used."""
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
                precision=_precision(candidate, costs),
            )
        )
    return tuple(planned)


def _precision(candidate: CandidatePartition, costs: WorkloadCosts) -> str:
    if candidate.backend == HOST or file_partition([candidate]) is not None:
        return FLOAT32
    return costs.workload(candidate).backend.precision


def planned_copies(decision: Decision) -> tuple[PlannedCopy, ...]:
    """The copies between devices of what ships, in execution order."""
    crossings, graph = decision.problem.crossings, decision.problem.graph
    if crossings is None or decision.shipped is None:
        return ()
    return tuple(
        PlannedCopy(
            node=node,
            operator="input" if graph.nodes[node].kind is NodeKind.INPUT else graph.nodes[node].op,
            source=source,
            target=target,
            nbytes=graph.nodes[node].size,
            seconds=crossings.copy_seconds(graph, (source, target, node)),
        )
        for source, target, node in crossings.placed(graph, decision.shipped.candidates)
    )


def planned_accuracy(within: Within) -> PlannedAccuracy:
    """How a decision keeps its budget."""
    shipped = within.shipped
    found = PlannedAccuracy(
        limit=within.budget.limit,
        metric=not isinstance(within.budget, ErrorBudget),
        samples=len(within.budget.samples),
        judged=len(within.attempts),
    )
    if shipped is None:
        return found
    return msgspec.structs.replace(
        found,
        predicted=shipped.point.error,
        measured=shipped.verdict.value,
        upper=shipped.verdict.upper,
        assumes_intervals=within.frontier.assumes_intervals,
        gap=max(0.0, 1.0 - within.frontier.bound(shipped.point.error) / shipped.point.seconds),
    )


def planned_frontier(within: Within) -> tuple[PlannedPoint, ...]:
    """The points of the frontier, most accurate first, with what was measured of some."""
    verdicts = {a.point.partitioning.candidates: a.verdict for a in within.attempts}
    points = []
    for point in within.frontier.points:
        partitions = [c for c in point.partitioning.candidates if c.backend != HOST]
        verdict = verdicts.get(point.partitioning.candidates)
        labels = {label for c in partitions for label, _ in c.composites if label == INT8}
        points.append(
            PlannedPoint(
                sum_s=point.seconds,
                bound_s=within.frontier.bound(point.error),
                predicted=point.error,
                measured=None if verdict is None else verdict.value,
                upper=None if verdict is None else verdict.upper,
                backends=tuple(sorted({c.backend for c in partitions} | labels)),
                partitions=len(partitions),
            )
        )
    return tuple(points)


def planned_ranges(
    placement: Partitioning | None, graph: DataflowGraph, backends: Mapping[str, Backend]
) -> tuple[tuple[int, float, float], ...]:
    """What the values of those partitions range over that have products in eight bits, by node."""
    nodes: set[int] = set()
    for candidate in placement.candidates if placement is not None else ():
        if candidate.backend != HOST and _has_int8(candidate, backends[candidate.backend]):
            inside = candidate.sub_graph.inside
            nodes.update(inside, *(graph.nodes[i].inputs for i in inside))
    known = [i for i in sorted(nodes) if graph.nodes[i].range != UNKNOWN]
    return tuple((i, *graph.nodes[i].range) for i in known)


def _has_int8(candidate: CandidatePartition, backend: Backend) -> bool:
    """Whether something of a partition is computed in eight bits."""
    return backend.precision == INT8 or any(label == INT8 for label, _ in candidate.composites)
