"""Backend: one way to run sub-graphs on one device, and all that the core has to know of it.

Three styles, after the RFC's partition flavours: *native* backends leave Relax functions to TVM's own code
generation; *library* backends match labelled patterns (`Composite` functions); *graph* backends take whole regions.
Library and graph backends turn `Codegen` functions into runtime modules that serialise with the executable.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from collage.annotations.precision import FLOAT32, LESS_PRECISE, UNKNOWN, Range
from collage.errors import CodegenError, PluginError
from collage.graph.index_set import IndexSet
from collage.rules.base import PartitionRule

if TYPE_CHECKING:
    from collage.backends.lowering import Lowering

Progress = Callable[[str], None]
Style = Literal["native", "library", "graph"]
_Backend = TypeVar("_Backend", bound="Backend")


@dataclass(frozen=True)
class Availability:
    """Whether a backend can be used here; when not, `reason` says what is missing and how to get it."""

    available: bool
    reason: str = ""


class Backend(ABC):
    """One backend.

    Attributes
    ----------
    name
        As in `backends=[...]`, in records and in plans.
    style
        Native, library or graph.
    device
        The DLPack device type that it runs on, "cpu" or "cuda".
    priority
        Lower is preferred when costs tie or are unknown.
    makes_blobs
        Whether its partitions become blobs (`engine_blob`) that an engine runs; False of native backends, and of those
        whose `codegen` makes other runtime modules.
    engine
        Of backends that make blobs: what runs them in a compiled model, a name of `collage.runtime.engines` or
        "package.module:attribute"; "" is the engine of the backend's own name.
    precision
        In how many bits it computes what is float32: "float32", or less (`collage.annotations.precision`). Backends of
        less are only chosen from where the user grants an error, or names them.
    incompatible
        Names of backends whose run-time libraries cannot live in one process with this one's.
    """

    name: ClassVar[str]
    style: ClassVar[Style]
    device: ClassVar[str] = "cpu"
    priority: ClassVar[int] = 100
    makes_blobs: ClassVar[bool] = True
    engine: ClassVar[str] = ""
    incompatible: ClassVar[frozenset[str]] = frozenset()
    #: Schedules that `tune` tries for each kernel before it is measured; 0 where there is nothing to tune.
    tune_trials: int = 0
    precision: str = FLOAT32
    _rule: PartitionRule | None = None

    @property
    def engine_name(self) -> str:
        """The name of the engine that runs its blobs."""
        return self.engine or self.name

    @property
    def tolerance(self) -> float:
        """The largest error, relative to the largest value of a float32 result, that a precision which the user asked
        for may cost. Results are held to the measuring protocol's tolerance where that is wider.
        """
        return 0.0

    @property
    def pool(self) -> str:
        """The pool of threads that its partitions run on: TVM's own, "tvm", or one that the engine brings."""
        return "tvm" if self.style == "native" else self.name

    @property
    def is_less_precise(self) -> bool:
        """Whether its results have an error that the user has to grant."""
        return self.precision in LESS_PRECISE

    def takes_int8(self, node: Any) -> bool:
        """Whether a node of its partitions can be computed in eight bits, with the label `INT8` of
        `collage.annotations.precision`; of graph backends only. By default none can.

        Parameters
        ----------
        node
            A `DataflowNode`.
        """
        return False

    def int8_operands(self, graph: Any, node: Any) -> tuple[int, ...]:
        """The nodes of a `DataflowGraph` that a node reads in eight bits where it is computed so; by default its data,
        the first one.
        """
        return (node.inputs[0],)

    def int8_nodes(self, graph: Any, inside: IndexSet) -> IndexSet:
        """Which nodes of a `DataflowGraph` can be in eight bits: those that it takes and whose data have a range; of a
        network that was not calibrated, all that it takes.
        """
        nodes = graph.nodes
        unknown = all(node.range == UNKNOWN for node in nodes)

        def is_able(index: int) -> bool:
            if not self.takes_int8(nodes[index]):
                return False
            return unknown or all(_has_range(nodes[i].range) for i in self.int8_operands(graph, nodes[index]))

        return IndexSet(filter(is_able, inside))

    def runs_file(self, graph: Any) -> bool:
        """Whether it can run the ONNX file that a network (a `DataflowGraph`) was loaded from as it is; by default not.
        Its code generator is then given a function whose attribute `ONNX_FILE` of `collage.annotations.onnx_file` names
        the file.
        """
        return False

    @property
    def coalesces(self) -> bool:
        """Whether one partition may hold several of what the rules find one by one: graph backends take regions side by
        side. So do library backends that compile functions of several labelled patterns; a blob is of one.
        """
        return self.style == "graph" or (self.style == "library" and not self.makes_blobs)

    @property
    def capturable(self) -> bool:
        """Whether its partitions can be part of a CUDA graph: they run on TVM's current stream, do not wait for it, and
        after their first call allocate nothing. A plan in which one cannot is launched call by call.
        """
        return self.style != "graph"

    @abstractmethod
    def availability(self) -> Availability:
        """Whether the backend can be used on this machine. Must not raise and must be cheap."""

    @abstractmethod
    def version(self) -> str:
        """Version of the library behind it: part of every record's key. Only called when available."""

    @abstractmethod
    def rule(self) -> PartitionRule:
        """The tree of rules that finds this backend's candidates."""

    def with_rule(self: _Backend, rule: PartitionRule) -> _Backend:
        """The backend with a user's rule instead of its own (RFC 0062, phase 1: a target's `partition_rule`)."""
        other = copy.copy(self)
        other._rule = rule
        return other

    @property
    def partition_rule(self) -> PartitionRule:
        """The tree of rules in force: the user's, or else the backend's own."""
        return self.rule() if self._rule is None else self._rule

    def __getstate__(self) -> dict[str, Any]:
        """Without a user's rule: it is not needed where candidates are built, and its patterns cannot be sent there."""
        return {name: value for name, value in self.__dict__.items() if name != "_rule"}

    def optimize(self, module: Any) -> Any:
        """The canonical module after rewrites of the whole network that help this backend; by default none. The user
        asks for them (`collage.optimize_for`).
        """
        return module

    def configuration(self) -> dict[str, Any]:
        """Settings that change what is built (tuning records, precision, ...): part of every record's key, beside a
        digest of the code that builds it (`collage.backends.code`), which need not be stated here.
        """
        return {}

    def codegen(self, functions: Sequence[Any], options: dict[str, Any]) -> list[Any]:
        """Compile `Codegen` functions (Relax functions with attribute `global_symbol`) to runtime modules.

        `options["threads"]` is the number of threads of the deployment. Native backends are lowered by TVM and never
        asked; those that make blobs need not override this: each function becomes a blob (`engine_blob`) that the
        engine of the same name runs.

        Raises
        ------
        CodegenError
            The backend cannot compile a function; the candidate becomes Invalid with this reason.
        """
        from collage.runtime.native import engine_module

        blobs = {str(f.attrs["global_symbol"]): self.engine_blob(f) for f in functions}
        settings = self.engine_options(int(options["threads"]))
        if options.get("alone"):
            settings |= self.alone_options()
        return [engine_module(self.engine_name, blobs, settings)]

    def tune(self, modules: Iterable[Any], threads: int, progress: Progress = lambda _: None) -> None:  # noqa: B027
        """Tune the kernels of partitioned modules, where `tune_trials` asks for it; each kernel once.

        Parameters
        ----------
        modules
            Relax modules with `Primitive` functions.
        threads
            That the kernels will run on.
        progress
            Called with a line for each kernel.

        Raises
        ------
        RecordsError
            The tuning records cannot be written.
        """

    @property
    def libraries(self) -> Mapping[str, Backend]:
        """Name -> library backend whose labelled patterns may be part of this one's partitions, which then call its
        engine (`collage.compile.rewrite.steps`); of native backends only.
        """
        return {}

    def with_libraries(self, libraries: Sequence[str | Backend]) -> Backend:
        """The same with more libraries, names or instances.

        Raises
        ------
        PluginError
            This backend calls none, or not such.
        """
        raise PluginError(f"{self.name} calls no libraries: native backends do")

    def library_of(self, label: str) -> tuple[Backend, str]:
        """The library that a label inside of a partition means, and the label as the library knows it (`split_label`).

        Raises
        ------
        CodegenError
            This backend calls no such library.
        """
        name, own = split_label(label)
        if name not in self.libraries:
            known = ", ".join(self.libraries) or "none"
            raise CodegenError(f"{self.name} calls no library for {label}; it was made with: {known}")
        return self.libraries[name], own

    def on_board(self: _Backend, target: Mapping[str, Any]) -> _Backend | None:
        """The same for a machine that runs TVM's runtime and nothing else; by default None: its partitions need more.

        Parameters
        ----------
        target
            TVM's target of that machine, as JSON-ready data (`collage.backends.tvm.target`).
        """
        return None

    def lowering(self, threads: int) -> Lowering | None:
        """Of native backends: what TVM does with modules that they are part of; None for others."""
        return None

    def prewarm(self, functions: Iterable[Any]) -> None:  # noqa: B027 (most backends have nothing to compile for it)
        """Compile side by side, and keep, what the blobs of `Codegen` functions need. What cannot be compiled is
        reported by `engine_blob`, which is called for each afterwards.
        """

    def engine_blob(self, function: Any) -> bytes:
        """What `collage.runtime.engines` makes the partition's function of, such as an ONNX model."""
        raise CodegenError(f"{self.name} does not run blobs")

    def engine_options(self, threads: int) -> dict[str, Any]:
        """Settings handed to the engine."""
        return {"threads": threads}

    def alone_options(self) -> dict[str, Any]:
        """More of them for a model in which no other pool of threads works: what slows others may be on."""
        return {}

    def __repr__(self) -> str:
        return f"<Backend {self.name}>"


def split_label(label: str) -> tuple[str, str]:
    """The name of the library that a label inside of a native partition means, and the label as the library knows it:
    "onednn:conv" is onednn's "conv", and "onednn.conv" without a colon its "onednn.conv".
    """
    name, colon, own = label.partition(":")
    return (name, own) if colon else (label.partition(".")[0], label)


def _has_range(ends: Range) -> bool:
    return ends != UNKNOWN and all(map(math.isfinite, ends))
