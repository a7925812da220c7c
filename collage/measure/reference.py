"""Reference values: the value of every node of a network in one run, computed by TVM operator by operator.

Candidates run on these values as inputs, real activations with legal indices, and are correct if they give these values
as outputs (Invariant 4 of the architecture). No exporter and no fusion is involved. A network in half precision is
computed in float32 from the same weights and inputs, and every value is rounded once. Where a reference is uncertain,
everything is computed in float64, if TVM can.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from itertools import islice
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.runtime.vm import VirtualMachine

from collage.annotations.opaque import opaque_calls
from collage.annotations.places import PLACES
from collage.annotations.precision import RANGES
from collage.backends.lowering import Lowering
from collage.backends.tvm.backend import CpuLowering, TVMBackend
from collage.compile.build import compile_partitioned
from collage.compile.rewrite import apply, with_outputs
from collage.errors import CodegenError, CollageError, ModelInputError, last_line
from collage.frontend.passes.precision import TO_DOUBLE, TO_SINGLE, Widening, calls_kernels, dtypes_of, widened_module
from collage.frontend.passes.rewriting import bindings
from collage.frontend.values import input_specs, output_specs
from collage.graph.candidates import HOST, CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.from_relax import read_graph
from collage.graph.index_set import IndexSet
from collage.graph.kinds import NodeKind, OpKind, ValueKind
from collage.graph.sub_graph import SubGraph
from collage.measure.inputs import random_inputs
from collage.measure.opaque import register


class ReferenceRun:
    """One run of a network, made when a value is first asked for.

    Parameters
    ----------
    module, graph
        The canonical module and its dataflow graph.
    threads
        Of TVM's pool.
    inputs
        One array per input; None makes legal random ones with `seed`.
    scheduled
        False computes on plain, unscheduled kernels, in float64 where TVM can: up to a hundred times slower, and
        certain.
    """

    def __init__(
        self,
        module: Any,
        graph: DataflowGraph,
        threads: int,
        inputs: Sequence[np.ndarray] | None = None,
        seed: int = 0,
        scheduled: bool = True,
    ) -> None:
        self.module = module
        self.graph = graph
        self.threads = threads
        self._given = inputs
        self.seed = seed
        self.scheduled = scheduled
        self._programs = _Programs(module, graph, threads, scheduled)

    def on(self, inputs: Sequence[np.ndarray]) -> ReferenceRun:
        """A run on other inputs; the network is compiled once for both."""
        other = ReferenceRun(self.module, self.graph, self.threads, inputs, self.seed, self.scheduled)
        other._programs = self._programs
        return other

    def values(self, indices: Sequence[int]) -> tuple[np.ndarray, ...]:
        """The arrays of the given nodes, in order; a node whose value is a tuple gives all of its fields."""
        return tuple(array for i in indices for array in self._trace[i])

    @cached_property
    def inputs(self) -> list[np.ndarray]:
        """The inputs of the run.

        Raises
        ------
        ModelInputError
            The arrays given do not fit the network.
        """
        if self._given is None:
            return random_inputs(self.module, self.seed)
        specs = input_specs(self.module)
        given = [np.asarray(array, order="C") for array in self._given]
        if len(given) != len(specs):
            raise ModelInputError(f"the network takes {len(specs)} inputs, {len(given)} were given")
        for array, spec in zip(given, specs, strict=True):
            if array.shape != spec.shape or str(array.dtype) != spec.dtype:
                raise ModelInputError(f"an input is {array.dtype}{list(array.shape)}; the network takes {spec}")
        return given

    @cached_property
    def outputs(self) -> list[np.ndarray]:
        """What the network returns: values of its nodes, so that it is compiled once for both; on its own where it
        returns anything else, such as a constant.
        """
        body = self.module["main"].body.body
        returned = list(body.fields) if isinstance(body, relax.Tuple) else [body]
        index = {node.var: i for i, node in enumerate(self.graph.nodes) if node.var is not None}
        if all(isinstance(value, relax.Var) and index.get(value) in self._trace for value in returned):
            return list(self.values([index[value] for value in returned]))
        return self._run(self._programs.of_result)

    def _run(self, program: _Program) -> list[np.ndarray]:
        """What a program of the network gives.

        Raises
        ------
        CollageError
            An opaque node does not run on these values: random ones may choose a branch that does not fit.
        """
        try:
            return program(self.inputs)
        except RuntimeError as error:
            if next(opaque_calls(self.module["main"]), None) is None:
                raise
            which = "random inputs" if self._given is None else "the inputs that were given"
            raise CollageError(
                f"the network does not run on {which}: {last_line(error)}; give inputs that it is meant for "
                "(inputs=, or --inputs SAMPLE.npz)"
            ) from error

    @cached_property
    def _trace(self) -> dict[int, list[np.ndarray]]:
        values = {i: [array] for i, array in zip(self.graph.inputs, self.inputs, strict=True)}
        shown = self._programs.shown
        if shown:
            arrays = iter(self._run(self._programs.of_nodes))
            for index in shown:
                ty = self.graph.nodes[index].var.ty
                values[index] = list(islice(arrays, len(ty.fields) if isinstance(ty, relax.TupleType) else 1))
        return values


_Program = Callable[[Sequence[np.ndarray]], list[np.ndarray]]


class _Programs:
    """What runs share: the network compiled, when it is first asked for."""

    def __init__(self, module: Any, graph: DataflowGraph, threads: int, scheduled: bool) -> None:
        self._module, self._graph = module, graph
        self._compiled = partial(compiled, threads=threads, scheduled=scheduled)
        self.shown = [i for i in graph.coverable if graph.nodes[i].value in (ValueKind.TENSOR, ValueKind.TUPLE)]

    @cached_property
    def of_nodes(self) -> _Program:
        module = with_outputs(self._module, self._graph, self.shown)
        # Fields of tuples are bindings more, so what was said of each binding does not fit.
        return self._compiled(module.without_attr(RANGES).without_attr(PLACES))

    @cached_property
    def of_result(self) -> _Program:
        return self._compiled(self._module)


def compiled(module: Any, threads: int, scheduled: bool = True) -> _Program:
    """What computes a module's result; plain kernels are in float64, as far as TVM has them (it has no norms)."""
    if not scheduled:
        with contextlib.suppress(CollageError):
            return _compiled_in(TO_DOUBLE, module, threads, scheduled)
    return _compiled_in(TO_SINGLE, module, threads, scheduled)


def _compiled_in(widening: Widening, module: Any, threads: int, scheduled: bool) -> _Program:
    """What computes a module's result in wider types. Kernels given as loops, and opaque nodes, cannot be widened: a
    network that has some runs as it is. So does one that returns a constant, and computes nothing.
    """
    main = module["main"]
    fixed = calls_kernels(main) or next(opaque_calls(main), None) is not None
    if next(bindings(main), None) is None or fixed or not dtypes_of(main) & widening.keys():
        return partial(run_once, _operator_by_operator(module, threads, scheduled))
    executable = _operator_by_operator(widened_module(module, widening), threads, scheduled)
    specs = output_specs(module)

    def run(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        wide = [array.astype(widening.get(array.dtype.name, array.dtype), copy=False) for array in inputs]
        results = run_once(executable, wide)
        with np.errstate(over="ignore"):  # beyond the largest number of a narrow type is infinity there, too
            return [array.astype(spec.dtype) for array, spec in zip(results, specs, strict=True)]

    return run


class _RunOnce(TVMBackend):
    """Kernels without LLVM's optimiser, which takes longer for hundreds of scheduled ones than they run."""

    def lowering(self, threads: int) -> Lowering:
        found = super().lowering(threads)
        target = tvm.target.Target({**found.target.export(), "opt-level": 0})
        return _Unchecked(target, found.tuning_records, found.linker)


class _Unchecked(CpuLowering):
    """Kernels that do not check their arguments. A network's compiler is their only caller; the checks are most of
    their code, above all where hundreds of values are concatenated, and are compiled to be run once.
    """

    def scope(self) -> AbstractContextManager[Any]:
        current = tvm.transform.PassContext.current()
        config = {**current.config, "tirx.disable_assert": True}
        found: AbstractContextManager[Any] = tvm.transform.PassContext(current.opt_level, config=config)
        return found


def _operator_by_operator(module: Any, threads: int, scheduled: bool) -> Any:
    """Compile with one kernel per operator; equal operators share it. Where a schedule does not compile, all of them
    are left plain: that a backend fails on an operator is found out by measuring, and costs a candidate, no network.
    """
    graph = read_graph(module)
    native = _RunOnce() if scheduled else TVMBackend()
    cover = []
    for index in graph.coverable:
        node = graph.nodes[index]
        fusible = node.kind is NodeKind.CALL and node.op_kind <= OpKind.ANCHOR and node.value is ValueKind.TENSOR
        cover.append(CandidatePartition(SubGraph(graph, IndexSet([index])), native.name if fusible else HOST))
    try:
        partitioned = apply(module, graph, cover, {native.name: native})
        try:
            return compile_partitioned(partitioned, [native], threads, scheduled=scheduled)
        except CodegenError:
            return compile_partitioned(partitioned, [TVMBackend()], threads, scheduled=False)
    except CollageError as error:
        raise CollageError(f"TVM cannot compute reference values for the network: {error}") from error


def run_once(executable: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What an executable returns for some inputs."""
    register()
    vm = VirtualMachine(executable, tvm.cpu())
    result = vm["main"](*(tvm.runtime.tensor(array) for array in inputs))
    return [t.numpy() for t in ([result] if isinstance(result, tvm.runtime.Tensor) else result)]
