"""Plan: what the phases found, as data: which backend runs which nodes, at what cost, and why.

A plan is saved as JSON that people can read and edit: change the `backend` of a partition, and phase 4 (`compile`)
    runs from it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from collage import plugins
from collage.backends.base import Backend
from collage.compile.build import CompiledExecutable, build, build_untouched
from collage.compile.rewrite import apply
from collage.confirm.contest import SEARCHED, UNTOUCHED, Confirmation, Rival
from collage.confirm.correction import Round
from collage.cost import Cost
from collage.errors import CollageError, PlanError
from collage.frontend.passes.layout import for_device
from collage.graph.candidates import HOST, CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.description import describe_module, structure_hash
from collage.graph.from_relax import read_graph
from collage.graph.index_set import IndexSet
from collage.graph.sub_graph import SubGraph
from collage.search import execution_order

FORMAT = "collage-plan"
VERSION = 2


@dataclass(frozen=True)
class PlannedPartition:
    """One partition of the plan that ships.

    Attributes
    ----------
    backend: its name; `host` for nodes that stay on the virtual machine.
    nodes: indices in the canonical module's dataflow graph.
    operators: their operators, in order.
    composites: (label, nodes) of library patterns inside.
    cost: estimated latency, alone.
    runner_up: backend of the next best candidate on the same nodes, "" when there is none, and its cost.
    """

    backend: str
    nodes: tuple[int, ...]
    operators: tuple[str, ...]
    composites: tuple[tuple[str, tuple[int, ...]], ...] = ()
    cost: Cost = field(default_factory=Cost.zero)
    runner_up: str = ""
    runner_up_cost: Cost = field(default_factory=Cost.unknown)

    @property
    def margin(self) -> float:
        """How much slower, relatively, the runner-up is; NaN when there is none."""
        return self.runner_up_cost.seconds / self.cost.seconds - 1.0 if self.cost.seconds > 0 else float("nan")


@dataclass(frozen=True)
class PlanRound:
    """A placement that was searched and run on the way to the plan (`collage.confirm.correction`).

    Attributes
    ----------
    partitions: number of partitions.
    searched: seconds, the sum of costs that it was found with: isolated ones in the first round, corrected ones later.
    isolated: seconds, the sum of what its partitions cost alone; NaN where that is not known.
    latency: end to end.
    loss: `latency` over that of the fastest rival in the same round.
    """

    partitions: int
    searched: float
    isolated: float
    latency: Cost
    loss: float

    @classmethod
    def of(cls, found: Round) -> PlanRound:
        placement = found.partitioning
        return cls(len(placement.partitions), placement.cost.seconds, found.isolated, found.latency, found.loss)


@dataclass(frozen=True)
class Plan:
    """A placement, confirmed or not, with its reasons.

    Attributes
    ----------
    module: the canonical module that it is a plan for.
    network: hash of that module's structure.
    choice: name of the rival that ships: "collage" is the searched one.
    partitions: of the plan that ships, in execution order.
    backends: backend instances by name.
    threads: number of threads of the deployment.
    device: the kind of device that it is for, "cpu" or "cuda".
    searched_cost: what the search said that its plan costs, in seconds, transitions included.
    lower_bound: proven lower bound of that sum, in seconds.
    corrected_cost: what the searched plan's partitions cost inside the whole, in seconds, transitions included; Unknown
        when it was not run.
    rounds: the placements that were run on the way; the searched plan is one of them.
    confirmation: what was seen end to end; None when the plan was not confirmed.
    searcher, estimator: what found it.
    notes: what the user should know.
    """

    module: Any
    network: str
    choice: str
    partitions: tuple[PlannedPartition, ...]
    backends: Mapping[str, Backend]
    threads: int
    device: str = "cpu"
    searched_cost: Cost = field(default_factory=Cost.unknown)
    lower_bound: float = 0.0
    corrected_cost: Cost = field(default_factory=Cost.unknown)
    rounds: tuple[PlanRound, ...] = ()
    confirmation: Confirmation | None = None
    searcher: str = ""
    estimator: str = ""
    notes: tuple[str, ...] = ()

    @property
    def additive_error(self) -> float:
        """End-to-end latency of the searched plan over the sum of its costs, less 1; NaN when not confirmed.

        The costs are the corrected ones where they are known.
        """
        total = self.corrected_cost if self.corrected_cost.is_finite else self.searched_cost
        return self._error(total.seconds)

    @property
    def isolated_error(self) -> float:
        """The same over the sum of what its partitions cost alone, each at its own time; NaN where not known."""
        return self._error(min(self.rounds, key=lambda r: r.loss).isolated if self.rounds else float("nan"))

    def _error(self, total: float) -> float:
        if self.confirmation is None:
            return float("nan")
        return self.confirmation.of(SEARCHED).latency.seconds / total - 1.0

    @property
    def apparent_loss(self) -> float:
        """How much slower, relatively, the searched plan is than the best rival; 0 when it is the best (RFC 0062)."""
        if self.confirmation is None:
            return float("nan")
        best = min(r.latency.seconds for r in self.confirmation.rivals if not r.latency.is_unknown)
        return self.confirmation.of(SEARCHED).latency.seconds / best - 1.0

    def placement(self, graph: DataflowGraph) -> tuple[CandidatePartition, ...]:
        """The partitions as candidates of the module's graph, in execution order.

        Raises
        ------
        CollageError: they are no cover of it (TVM's own build ships, for one, which has no partitions).
        """
        candidates = [
            CandidatePartition(
                SubGraph(graph, IndexSet(p.nodes)), p.backend, tuple((label, IndexSet(n)) for label, n in p.composites)
            )
            for p in self.partitions
        ]
        return execution_order(graph, candidates)

    def partitioned(self) -> Any:
        """Phase 4: the module with one function per partition."""
        graph = read_graph(self.module)
        return apply(self.module, graph, self.placement(graph), self.backends)

    def compile(self) -> CompiledExecutable:
        """Compile the plan: something to call, and to export into one file.

        Raises
        ------
        CodegenError: a backend cannot compile its partition (after a plan was edited, say).
        """
        metadata = {
            "network": self.network,
            "choice": self.choice,
            "partitions": [{"backend": p.backend, "operators": list(p.operators)} for p in self.partitions],
            "versions": {name: b.version() for name, b in self.backends.items()},
        }
        if self.choice == UNTOUCHED:
            return build_untouched(self.module, self.threads, metadata, self.device)
        return build(self.partitioned(), list(self.backends.values()), self.threads, metadata)

    def summary(self) -> str:
        """A table of the partitions and of the rivals, for a terminal."""
        from collage.report.summary import summarise

        return summarise(self)

    def to_dict(self) -> dict[str, Any]:
        """JSON-compatible; `save` writes it."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "network": self.network,
            "choice": self.choice,
            "threads": self.threads,
            **({} if self.device == "cpu" else {"device": self.device}),
            "backends": {name: backend.version() for name, backend in self.backends.items()},
            "searcher": self.searcher,
            "estimator": self.estimator,
            "searched_cost": _cost_to_dict(self.searched_cost),
            "lower_bound_s": self.lower_bound,
            "corrected_cost": _cost_to_dict(self.corrected_cost),
            "rounds": [_round_to_dict(r) for r in self.rounds],
            "confirmation": None if self.confirmation is None else _confirmation_to_dict(self.confirmation),
            "notes": list(self.notes),
            "partitions": [_partition_to_dict(p) for p in self.partitions],
        }

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON.

        Raises
        ------
        PlanError: the file cannot be written.
        """
        target = Path(path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(json.dumps(self.to_dict(), indent=1) + "\n")
        except OSError as error:
            raise PlanError(f"{target}: cannot write the plan: {error.strerror}") from error

    @classmethod
    def load(cls, path: str | Path, module: Any) -> Plan:
        """Read a plan for `module`, what `collage.load` gives of the network that it was made for.

        Raises
        ------
        PlanError: the file is missing, is not a plan, is of another version, or is for another network; or it was
            edited into something that is not a cover, or names a backend that there is not.
        """
        source = Path(path)
        try:
            data = json.loads(source.read_text())
        except OSError as error:
            raise PlanError(f"{source}: cannot read the plan: {error.strerror}") from error
        except ValueError as error:
            raise PlanError(f"{source}: not a plan: {error}") from error
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise PlanError(f"{source}: not a plan written by Collage")
        if data.get("version") != VERSION:
            raise PlanError(
                f"{source}: a plan of version {data.get('version')}; this Collage reads version {VERSION}: tune again"
            )
        module = for_device(module, str(data.get("device", "cpu")))
        if data.get("network") != structure_hash(describe_module(module)):
            raise PlanError(f"{source}: the plan is for another network (its structure differs): tune this one")
        try:
            plan = _from_dict(data, module)
        except (KeyError, TypeError, ValueError) as error:
            raise PlanError(f"{source}: a field of the plan is missing or wrong: {error}") from error
        _check(plan, source)
        return plan


def _from_dict(data: Mapping[str, Any], module: Any) -> Plan:
    partitions = tuple(_partition_from_dict(p) for p in data["partitions"])
    names = sorted({p.backend for p in partitions} - {HOST} | set(data["backends"]))
    confirmation = data["confirmation"]
    return Plan(
        module=module,
        network=data["network"],
        choice=data["choice"],
        partitions=partitions,
        backends={name: plugins.load("backends", name) for name in names},
        threads=int(data["threads"]),
        device=str(data.get("device", "cpu")),
        searched_cost=_cost_from_dict(data["searched_cost"]),
        lower_bound=float(data["lower_bound_s"]),
        corrected_cost=_cost_from_dict(data["corrected_cost"]),
        rounds=tuple(_round_from_dict(r) for r in data["rounds"]),
        confirmation=None if confirmation is None else _confirmation_from_dict(confirmation),
        searcher=data["searcher"],
        estimator=data["estimator"],
        notes=tuple(data["notes"]),
    )


def _check(plan: Plan, source: Path) -> None:
    """An edited plan has to be a legal cover, and its nodes have to be those it names."""
    graph = read_graph(plan.module)
    for number, partition in enumerate(plan.partitions):
        if any(not 0 <= i < len(graph.nodes) for i in partition.nodes) or not partition.nodes:
            raise PlanError(
                f"{source}: partition {number} names nodes that the network does not have: {list(partition.nodes)}"
            )
        operators = tuple(graph.nodes[i].op for i in partition.nodes)
        if operators != partition.operators:
            raise PlanError(f"{source}: partition {number} holds {list(operators)}, not {list(partition.operators)}")
    if plan.choice == UNTOUCHED:
        return
    try:
        plan.placement(graph)
    except CollageError as error:
        raise PlanError(f"{source}: {error}") from error
    for name, backend in plan.backends.items():
        if any(p.backend == name for p in plan.partitions) and not backend.availability().available:
            raise PlanError(f"{source}: the plan uses {name}: {backend.availability().reason}")


def _partition_to_dict(partition: PlannedPartition) -> dict[str, Any]:
    return {
        "backend": partition.backend,
        "nodes": list(partition.nodes),
        "operators": list(partition.operators),
        "composites": [[label, list(nodes)] for label, nodes in partition.composites],
        "cost": _cost_to_dict(partition.cost),
        "runner_up": partition.runner_up,
        "runner_up_cost": _cost_to_dict(partition.runner_up_cost),
    }


def _partition_from_dict(data: Mapping[str, Any]) -> PlannedPartition:
    return PlannedPartition(
        backend=str(data["backend"]),
        nodes=tuple(int(i) for i in data["nodes"]),
        operators=tuple(str(op) for op in data["operators"]),
        composites=tuple((str(label), tuple(int(i) for i in nodes)) for label, nodes in data["composites"]),
        cost=_cost_from_dict(data["cost"]),
        runner_up=str(data["runner_up"]),
        runner_up_cost=_cost_from_dict(data["runner_up_cost"]),
    )


def _round_to_dict(found: PlanRound) -> dict[str, Any]:
    numbers = {"searched_s": found.searched, "isolated_s": found.isolated, "loss": found.loss}
    finite = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
    return {"partitions": found.partitions, **finite, "latency": _cost_to_dict(found.latency)}


def _round_from_dict(data: Mapping[str, Any]) -> PlanRound:
    searched, isolated = (math.nan if data[k] is None else float(data[k]) for k in ("searched_s", "isolated_s"))
    loss = math.inf if data["loss"] is None else float(data["loss"])
    return PlanRound(int(data["partitions"]), searched, isolated, _cost_from_dict(data["latency"]), loss)


def _cost_to_dict(cost: Cost) -> dict[str, Any]:
    """Seconds are null when the cost is Unknown, and "invalid" when it is Invalid: JSON has neither NaN nor
    infinity.
    """
    seconds: Any = "invalid" if cost.is_invalid else None if cost.is_unknown else cost.seconds
    return {"seconds": seconds, "spread": cost.spread, "samples": cost.samples, "reason": cost.reason}


def _cost_from_dict(data: Mapping[str, Any]) -> Cost:
    if data["seconds"] is None:
        return Cost.unknown(data["reason"])
    if data["seconds"] == "invalid":
        return Cost.invalid(data["reason"])
    return Cost(float(data["seconds"]), float(data["spread"]), int(data["samples"]), str(data["reason"]))


def _confirmation_to_dict(confirmation: Confirmation) -> dict[str, Any]:
    rivals = [
        {**_without_empty(asdict(replace(r, latency=Cost.zero()))), "latency": _cost_to_dict(r.latency)}
        for r in confirmation.rivals
    ]
    return {"shipped": confirmation.shipped, "rivals": rivals}


def _without_empty(rival: dict[str, Any]) -> dict[str, Any]:
    """Without what only accelerators have, where it is not there."""
    return {name: value for name, value in rival.items() if value or name != "launch_seconds"}


def _confirmation_from_dict(data: Mapping[str, Any]) -> Confirmation:
    rivals = (
        Rival(
            r["name"],
            _cost_from_dict(r["latency"]),
            None if r["ratio"] is None else tuple(r["ratio"]),
            tuple(r["partition_seconds"]),
            tuple(r.get("launch_seconds", ())),
        )
        for r in data["rivals"]
    )
    return Confirmation(data["shipped"], tuple(rivals))
