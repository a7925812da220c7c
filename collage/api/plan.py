"""Plan: what `collage.partition` returns; it can be summarised, saved, loaded and compiled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from collage import plugins
from collage.annotations.places import places_of
from collage.backends.base import Backend, split_label
from collage.backends.tvm.target import parse_target
from collage.compile.build import CompiledExecutable, build, build_untouched
from collage.compile.rewrite import apply
from collage.confirm.confirmation import UNTOUCHED
from collage.errors import CollageError, PlanError
from collage.frontend.passes.device import for_device
from collage.graph.candidates import HOST, CandidatePartition, fits
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.description import describe_module, structure_hash
from collage.graph.from_relax import read_graph, with_node_ranges
from collage.graph.index_set import IndexSet
from collage.graph.sub_graph import SubGraph
from collage.planned import file
from collage.planned.data import PlanData
from collage.planned.explanation import planned_graph
from collage.report.notebook import to_fragment
from collage.report.summary import summarise
from collage.search import execution_order


# In the file, `backends` are the versions; of a `Plan` only its `PlanData` is written.
class Plan(PlanData, frozen=True, kw_only=True, rename={"backends": "instances"}):
    """A plan with the network and the backends that it is for (`PlanData` has the other fields).

    Attributes
    ----------
    module
        The canonical module that it is a plan for.
    backends
        Backend instances by name.
    """

    module: Any
    backends: Mapping[str, Backend]

    def placement(self, graph: DataflowGraph) -> tuple[CandidatePartition, ...]:
        """The partitions as candidates of the module's graph, in execution order.

        Raises
        ------
        CollageError
            They are no cover of it: TVM's own build, for example, has no partitions.
        """
        candidates = [
            CandidatePartition(
                SubGraph(graph, IndexSet(p.nodes)), p.backend, tuple((label, IndexSet(n)) for label, n in p.composites)
            )
            for p in self.partitions
        ]
        return execution_order(graph, candidates)

    def partitioned(self) -> Any:
        """Phase 4: the Relax module in which each partition is a function of its own.

        Raises
        ------
        CollageError
            As of `placement`.
        """
        graph = read_graph(self.module)
        return apply(self.module, graph, self.placement(graph), self.backends)

    def compile(self) -> CompiledExecutable:
        """Compile the plan: something to call, and to export into one file.

        Raises
        ------
        CodegenError
            A backend cannot compile its partition, for example after the plan was edited.
        """
        metadata = {
            "network": self.network,
            "choice": self.choice,
            "partitions": [{"backend": p.backend, "operators": list(p.operators)} for p in self.partitions],
            "versions": {name: b.version() for name, b in self.backends.items()},
        }
        if self.choice == UNTOUCHED:
            native = [backend for backend in self.backends.values() if backend.device == self.device]
            return build_untouched(self.module, self.threads, metadata, self.device, native)
        return build(self.partitioned(), list(self.backends.values()), self.threads, metadata, self.device)

    def summary(self, details: bool = True) -> str:
        """Text for a terminal: which plan ships, its latency with its interval; with `details` also what runs where."""
        return summarise(self, details=details)

    def with_network(self) -> Plan:
        """The plan with the network as data, which the report draws and older plan files leave out."""
        return (
            self if self.graph is not None else replace(self, graph=planned_graph(self.module, read_graph(self.module)))
        )

    def _repr_html_(self) -> str:
        """The summary, for notebooks."""
        return to_fragment(self)

    def to_dict(self) -> dict[str, Any]:
        """JSON-compatible; `save` writes it."""
        return file.to_dict(self.data())

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON; what is at `path` stays whole until the new file is complete.

        Raises
        ------
        PlanError
            The file cannot be written.
        """
        file.write(self.data(), Path(path))

    def data(self) -> PlanData:
        """What is written: the plan without the network and the backends."""
        return PlanData(**{name: getattr(self, name) for name in PlanData.__struct_fields__})

    @classmethod
    def load(cls, path: str | Path, module: Any) -> Plan:
        """Read a saved plan.

        Parameters
        ----------
        path
            The file that `save` wrote, perhaps edited.
        module
            What `collage.load` returns for the network that the plan was made for.

        Raises
        ------
        PlanError
            The file is missing, is not a plan, is of another version, or is for another network; or it was edited and
            is no cover, or uses a backend that is unknown or not available.
        """
        return cls.of(file.read(Path(path)), module, Path(path))

    @classmethod
    def of(cls, data: PlanData, module: Any, source: Path) -> Plan:
        """The plan that `source` holds, for `module`; raises PlanError as `load` does."""
        if not places_of(module):  # they go by bindings
            module = for_device(module, data.device)
        if data.network != structure_hash(describe_module(module)):
            raise PlanError(f"{source}: the plan is for another network (its structure differs): tune this one")
        used = {p.backend for p in data.partitions} - {HOST}
        if data.ranges:
            module = with_node_ranges(module, {index: (low, high) for index, low, high in data.ranges})
        backends = {name: _loaded(name, data, source) for name in sorted(used | set(data.versions))}
        graph = read_graph(module)
        plan = cls(**{name: getattr(data, name) for name in data.__struct_fields__}, module=module, backends=backends)
        file.check(plan, graph, source)
        if plan.choice == UNTOUCHED:
            return plan
        try:
            misplaced = [
                c for c in plan.placement(graph) if c.backend != HOST and not fits(c, backends[c.backend].device)
            ]
        except CollageError as error:
            raise PlanError(f"{source}: {error}") from error
        file.check_labels(plan, graph, backends, source)
        if misplaced:
            raise PlanError(f"{source}: {misplaced[0]} has values that the network wants on another device")
        for name in sorted(used):
            if not backends[name].availability().available:
                raise PlanError(f"{source}: the plan uses {name}: {backends[name].availability().reason}")
        return plan


def _loaded(name: str, data: PlanData, source: Path) -> Backend:
    """The backend of a name, for the plan's target, with the libraries that its partitions call."""
    backend: Backend = plugins.load("backends", name)
    if data.target:
        found = backend.on_board(parse_target(data.target))
        if found is None:
            raise PlanError(f"{source}: the plan is for a board, and {name} has no runtime there")
        return found
    labels = (label for p in data.partitions if p.backend == name for label, _ in p.composites)
    called = sorted({split_label(label)[0] for label in labels}) if backend.style == "native" else []
    return backend.with_libraries(called) if called else backend
