"""Workloads: descriptions of candidates, from which estimators compute costs, without extracting Relax modules.

A network has thousands of candidates and few different ones. Their descriptions are put together from descriptions of
the nodes, which are made once. A module is extracted only for candidates that have to be built.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import relax

from collage.backends.base import Backend
from collage.compile.rewrite import extract, ordered_inputs, ordered_outputs
from collage.cost.cost import Cost
from collage.cost.estimator import CostEstimator, Samples, Workload, estimates, measured_alike
from collage.graph.candidates import CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.description import describe_type, describe_value, structure_hash
from collage.graph.kinds import NodeKind
from collage.graph.sub_graph import SubGraph

#: How many reasons a plan tells of costs that are unknown.
_REASONS = 3

Values = Callable[[Sequence[int]], tuple[Any, ...]]


class WorkloadFactory:
    """Makes the workloads of one network.

    Parameters
    ----------
    module, graph
        The canonical module and its dataflow graph.
    backends
        Name -> backend.
    threads
        Number of threads of the deployment.
    values
        Node indices -> the arrays that those nodes hold in a reference run of the network; None leaves workloads
        without samples.
    working_set
        Bytes that a call of the network touches (`collage.graph.working_set`); 0 takes nothing to stay in the caches.
    """

    def __init__(
        self,
        module: Any,
        graph: DataflowGraph,
        backends: Mapping[str, Backend],
        threads: int,
        values: Values | None = None,
        working_set: int = 0,
    ) -> None:
        self.module = module
        self.graph = graph
        self.backends = backends
        self.threads = threads
        self.values = values
        self.working_set = working_set
        self._nodes = [self._describe_node(i) for i in range(len(graph.nodes))]
        self._structures: dict[SubGraph, str] = {}
        self._workloads: dict[CandidatePartition, Workload] = {}

    def of(self, candidate: CandidatePartition) -> Workload:
        """The workload of a candidate; candidates of equal structure and backend give equal workloads."""
        if candidate not in self._workloads:  # every search asks for all of them
            self._workloads[candidate] = self._of(candidate)
        return self._workloads[candidate]

    def _of(self, candidate: CandidatePartition) -> Workload:
        sub_graph = candidate.sub_graph
        position = {index: i for i, index in enumerate(sub_graph.inside)}
        composites = tuple((label, tuple(position[i] for i in nodes)) for label, nodes in candidate.composites)
        if sub_graph not in self._structures:
            self._structures[sub_graph] = structure_hash(self._description(sub_graph))
        return Workload(
            backend=self.backends[candidate.backend],
            structure=self._structures[sub_graph],
            operators=tuple(self.graph.nodes[i].op for i in sub_graph.inside),
            extract=lambda: extract(self.module, sub_graph),
            describe=lambda: self._description(sub_graph),
            composites=composites,
            threads=self.threads,
            samples=None if self.values is None else lambda: self._samples(sub_graph),
            working_set=self.working_set,
        )

    def _description(self, sub_graph: SubGraph) -> dict[str, Any]:
        """The same as `collage.graph.description.describe_module` of the extracted module."""
        inputs = ordered_inputs(sub_graph)
        types: list[Any] = []
        references = {index: _parameters(self.graph.nodes[index].var.ty, types) for index in inputs}
        references |= {index: ["node", i] for i, index in enumerate(sub_graph.inside)}
        nodes = [
            {**node, "args": [_resolve(arg, references) for arg in node["args"]]}
            for node in (self._nodes[i] for i in sub_graph.inside)
        ]
        return {
            "inputs": types,
            "nodes": nodes,
            "outputs": [references[i] for i in ordered_outputs(sub_graph)],
        }

    def _describe_node(self, index: int) -> dict[str, Any]:
        node = self.graph.nodes[index]
        if node.kind in (NodeKind.INPUT, NodeKind.CONSTANT):
            return {}
        sources = {self.graph.nodes[i].var: ["graph", i] for i in node.inputs if self.graph.nodes[i].var is not None}
        return describe_value(self.module, node.expr, node.var.ty, sources.__getitem__)

    def _samples(self, sub_graph: SubGraph) -> Samples:
        assert self.values is not None
        return Samples(self.values(ordered_inputs(sub_graph)), self.values(ordered_outputs(sub_graph)))


class WorkloadCosts:
    """Costs of candidates by their workloads: those of equal workload are one question to the estimator.

    Attributes
    ----------
    asked
        Workloads whose cost was estimated.
    unknown
        Why, of each cost that was not found.
    """

    def __init__(self, estimator: CostEstimator, workload: Callable[[CandidatePartition], Workload]) -> None:
        self.estimator = estimator
        self.workload = workload
        self.asked: set[Workload] = set()
        self.unknown: dict[Workload, str] = {}

    def costs(self, candidates: Sequence[CandidatePartition]) -> list[Cost]:
        """The estimator's cost of each."""
        workloads = [self.workload(candidate) for candidate in candidates]
        costs = estimates(self.estimator, workloads)
        self.asked.update(costs)
        self.unknown.update({w: cost.reason for w, cost in costs.items() if cost.is_unknown})
        return [costs[w] for w in workloads]

    def notes(self) -> list[str]:
        """What a reader of a plan has to know of the costs: which are unknown and why, and what the estimator says."""
        reasons = Counter(self.unknown.values()).most_common()
        unknown = [f"{count} costs are unknown: {reason}" for reason, count in reasons[:_REASONS]]
        if len(reasons) > _REASONS:
            unknown.append(f"{sum(count for _, count in reasons[_REASONS:])} costs are unknown for other reasons")
        return [*unknown, *self.estimator.notes(self.asked)]

    def intervals(self, candidates: Sequence[CandidatePartition]) -> list[tuple[float, float]] | None:
        """Between which seconds the estimator expects each cost; None where it has no intervals."""
        workloads = [self.workload(candidate) for candidate in candidates]
        unique = list(dict.fromkeys(workloads))
        by_workload: dict[Workload, tuple[float, float]] = {}
        for own in measured_alike(unique):
            bounds = self.estimator.bounds(own)
            if bounds is None:
                return None
            by_workload.update(zip(own, bounds, strict=True))
        return [by_workload[w] for w in workloads]


def _parameters(ty: Any, types: list[Any]) -> list[Any]:
    """The reference of an input of this type, after the types of its parameters were appended to `types`."""
    if isinstance(ty, relax.TupleType):
        return ["tuple", [_parameters(field, types) for field in ty.fields]]
    types.append(describe_type(ty))
    return ["in", len(types) - 1]


def _resolve(reference: list[Any], references: Mapping[int, list[Any]]) -> list[Any]:
    if reference[0] == "graph":
        return references[reference[1]]
    if reference[0] == "tuple":
        return ["tuple", [_resolve(field, references) for field in reference[1]]]
    return reference
