"""From a `Decision` to what the report explains: the network's nodes, and the candidates beside each partition."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from collage.compile.rewrite import file_partition
from collage.confirm import correction
from collage.confirm.decision import Decision
from collage.cost.cost import Cost
from collage.graph.candidates import HOST, CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph, DataflowNode
from collage.graph.description import describe_type, describe_value
from collage.graph.kinds import NodeKind
from collage.measure.workloads import WorkloadCosts
from collage.planned.graph import (
    FAILED,
    INSIDE,
    MEASURED,
    NOT_ASKED,
    PREDICTED,
    UNKNOWN,
    PlannedCandidate,
    PlannedCandidates,
    PlannedGraph,
    PlannedNode,
    ranges_text,
)

#: What Relax calls a value without a name.
_MADE_UP = re.compile(r"[lg]v\d*")
#: How many candidates are listed for a partition, and how long the text of an attribute or a reason may be.
_MOST, _LONGEST = 24, 200


def planned_graph(module: Any, graph: DataflowGraph) -> PlannedGraph:
    """The graph of a canonical module as data."""
    places: dict[str, int] = {}
    attributes: list[Mapping[str, Any]] = []
    nodes = []
    for node in graph.nodes:
        found = _attributes(module, node)
        key = json.dumps(found, sort_keys=True)
        if found and key not in places:
            places[key] = len(attributes)
            attributes.append(json.loads(key))  # texts of TVM's are of types of its own
        name = "" if node.var is None or _MADE_UP.fullmatch(node.var.name) else str(node.var.name)
        nodes.append(PlannedNode(node.op, node.inputs, _type_text(node), name, places.get(key, -1)))
    return PlannedGraph(tuple(nodes), tuple(attributes))


def _attributes(module: Any, node: DataflowNode) -> dict[str, Any]:
    """Those that say something, and the operands that are neither tensors nor parameters, by position."""
    if node.kind in (NodeKind.INPUT, NodeKind.CONSTANT) or node.expr is None or node.op.startswith("call_tir"):
        return {}
    description = describe_value(module, node.expr, node.var.ty, lambda _: ["tensor"])
    operands = {
        f"operand {i + 1}": arg[1] for i, arg in enumerate(description["args"]) if arg[0] in ("value", "scalar")
    }
    found = {**description["attrs"], **operands}
    return {name: _short(value) for name, value in found.items() if value not in (None, "")}


def _short(value: Any) -> Any:
    text = json.dumps(value, default=str)
    return value if len(text) <= _LONGEST and not isinstance(value, dict) else text[:_LONGEST]


def _type_text(node: DataflowNode) -> str:
    holder = node.expr if node.var is None else node.var
    return "" if holder is None else _text(describe_type(holder.ty))


def _text(described: list[Any]) -> str:
    if len(described) == 2 and isinstance(described[1], str):
        shape, dtype = described
        return f"{dtype}[{'?' if shape is None else ','.join(map(str, shape))}]"
    return f"({', '.join(map(_text, described))})"


def planned_candidates(decision: Decision, costs: WorkloadCosts) -> PlannedCandidates | None:
    """What the partitions that ship were chosen from; None for TVM's own build. Nothing is measured."""
    if decision.shipped is None:
        return None
    problem, chosen = decision.problem, decision.shipped.candidates
    alike = _alike(chosen, costs)
    owner = {
        node: n for n, c in enumerate(chosen) if alike[n] == n and c.backend != HOST for node in c.sub_graph.inside
    }
    beside: dict[int, list[CandidatePartition]] = {}
    asked = 0
    for candidate in problem.candidates:
        if candidate.backend == HOST:
            continue
        asked += costs.workload(candidate) in costs.asked
        for number in sorted({owner[node] for node in candidate.sub_graph.inside if node in owner}):
            beside.setdefault(number, []).append(candidate)
    known = _known(decision, costs, {c for group in beside.values() for c in group})
    listed: list[tuple[int, CandidatePartition]] = []
    more = [0] * len(chosen)
    for number, group in sorted(beside.items()):
        inside = chosen[number].sub_graph.inside
        group.sort(key=lambda c: (c.sub_graph.inside.bits != inside.bits, _per_node(c, known.get(costs.workload(c)))))
        listed += [(number, candidate) for candidate in group[:_MOST]]
        more[number] = max(0, len(group) - _MOST)
    expected = problem.intervals([candidate for _, candidate in listed]) or [(0.0, math.inf)] * len(listed)
    rows = [
        _row(number, candidate, known.get(costs.workload(candidate)), interval)
        for (number, candidate), interval in zip(listed, expected, strict=True)
    ]
    found = sum(c.backend != HOST for c in problem.candidates)
    return PlannedCandidates(found, asked, tuple(alike), tuple(more), tuple(rows))


def _alike(chosen: Sequence[CandidatePartition], costs: WorkloadCosts) -> list[int]:
    """For each partition, the first one of equal workload."""
    first: dict[object, int] = {}
    alone = {n for n, c in enumerate(chosen) if c.backend == HOST or file_partition([c]) is not None}
    return [first.setdefault(n if n in alone else costs.workload(c), n) for n, c in enumerate(chosen)]


def _known(decision: Decision, costs: WorkloadCosts, among: set[CandidatePartition]) -> dict[object, Cost]:
    """Costs by workload, of those that were asked for."""
    asked = {costs.workload(c): c for c in among if costs.workload(c) in costs.asked}
    return dict(zip(asked, decision.problem.costs(list(asked.values())), strict=True))


def _per_node(candidate: CandidatePartition, cost: Cost | None) -> float:
    return cost.seconds / len(candidate.sub_graph.inside) if cost is not None and cost.is_finite else math.inf


def _row(
    number: int, candidate: CandidatePartition, cost: Cost | None, expected: tuple[float, float]
) -> PlannedCandidate:
    finite = cost is not None and cost.is_finite
    low, high = (_rounded(end) if 0.0 < end < math.inf else None for end in expected)
    return PlannedCandidate(
        number,
        candidate.backend,
        ranges_text(candidate.sub_graph.inside),
        _how(cost),
        _rounded(cost.seconds) if cost is not None and finite else None,
        _rounded(cost.spread) if cost is not None and finite else 0.0,
        low,
        high,
        cost.reason[:_LONGEST] if cost is not None and not finite else "",
    )


def _how(cost: Cost | None) -> str:
    if cost is None:
        return NOT_ASKED
    if not cost.is_finite:
        return FAILED if cost.is_invalid else UNKNOWN
    if cost.reason == correction.INSIDE:
        return INSIDE
    return PREDICTED if cost.is_predicted else MEASURED


def _rounded(seconds: float) -> float:
    """To four digits: of a list that is read, not compiled from."""
    return float(f"{seconds:.4g}")
