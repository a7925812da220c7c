"""Functions of the float32 network, and operators alone, compiled to run on arrays.

What measures errors runs hundreds of times, so it runs on an engine, without the virtual machine. A network that no
engine takes whole runs on TVM, operator by operator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from collage.annotations.precision import INT8_POSITIONS, INT8_RANGES, UNKNOWN, Range, with_ranges
from collage.backends.base import Backend
from collage.compile.build import compile_partitioned
from collage.compile.rewrite import apply
from collage.errors import CodegenError, CompiledModelError
from collage.frontend.passes.rewriting import bindings, substitute, variables
from collage.frontend.values import dtype_of, static_shape
from collage.graph.candidates import HOST, CandidatePartition
from collage.graph.from_relax import read_graph
from collage.graph.index_set import IndexSet
from collage.graph.kinds import NodeKind
from collage.graph.sub_graph import SubGraph
from collage.measure.reference import compiled, run_once
from collage.rules.base import PartitionSpec
from collage.runtime import engines

Program = Callable[[Sequence[np.ndarray]], list[np.ndarray]]


def on_engine(
    function: Any, backend: Backend, threads: int, int8: Mapping[int, Sequence[Range]] | None = None
) -> Program:
    """What runs a Relax function on the engine of a graph backend.

    Parameters
    ----------
    int8
        Position of a binding that is in eight bits -> the ranges of its operands; those that are not known are not
        quantised.

    Raises
    ------
    CodegenError, CompiledModelError
        The backend does not take it.
    """
    attributes: dict[str, Any] = {"Codegen": backend.name, "global_symbol": "measured"}
    if int8:
        listed = list(bindings(function))
        ranges = {
            operand: ends
            for position, own in int8.items()
            for operand, ends in zip(listed[position][1].args, own, strict=False)
        }
        values = [*function.params, *(variable for variable, _ in listed)]
        attributes[INT8_POSITIONS] = list(int8)
        attributes[INT8_RANGES] = [end for value in values for end in ranges.get(value, UNKNOWN)]
    blob = backend.engine_blob(function.with_attrs(attributes))
    run = engines.create(backend.engine_name, blob, {**backend.engine_options(threads), **backend.alone_options()})
    in_place = engines.find(backend.engine_name).any_address
    result = function.ret_ty
    types = list(result.fields) if isinstance(result, relax.TupleType) else [result]
    shapes = [static_shape(ty) for ty in types]

    def call(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        outputs = [tvm.runtime.empty(shape, dtype_of(ty)) for shape, ty in zip(shapes, types, strict=True)]
        run(*(_tensor(array, in_place) for array in arrays), *outputs)
        return [output.numpy() for output in outputs]

    if None in shapes:
        raise CodegenError("the shape of a result depends on data")
    return call


def _tensor(array: np.ndarray, in_place: bool) -> Any:
    """A tensor of an array, on the array's own memory where that can be."""
    if in_place and array.flags.c_contiguous and array.flags.writeable:
        return tvm_ffi.from_dlpack(array)
    return tvm.runtime.tensor(array)


def by_patterns(function: Any, backend: Backend, threads: int, ranges: Sequence[Range]) -> Program:
    """What runs a Relax function of calls that do not know each other, each on a library backend by itself.

    Parameters
    ----------
    ranges
        Of each parameter.

    Raises
    ------
    CodegenError
        The backend does not take a call alone.
    """
    main = relax.GlobalVar("main")
    module = relax.transform.CanonicalizeBindings()(tvm.IRModule({main: function.with_attr("global_symbol", "main")}))
    unknown = [UNKNOWN for _ in bindings(module["main"])]
    module = with_ranges(module, [*ranges, *unknown])
    graph = read_graph(module)
    found = PartitionSpec(backend.partition_rule, backend.name).candidates(graph)
    alone = {each.sub_graph.inside.first: each for each in found if len(each.sub_graph.inside) == 1}
    cover = []
    for index in graph.coverable:
        node = graph.nodes[index]
        if node.kind is NodeKind.CALL and index not in alone:
            raise CodegenError(f"{backend.name} does not take {node} alone")
        cover.append(alone.get(index) or CandidatePartition(SubGraph(graph, IndexSet([index])), HOST))
    partitioned = apply(module, graph, cover, {backend.name: backend})
    engines.register()
    return partial(run_once, compile_partitioned(partitioned, [backend], threads))


def anywhere(module: Any, backends: Iterable[Backend], threads: int) -> Program:
    """What runs the `main` of a module on the first of some backends that takes it; on TVM where none does."""
    for backend in backends:
        try:
            return on_engine(module["main"], backend, threads)
        except (CodegenError, CompiledModelError):
            continue
    return compiled(module, threads)


def side_by_side(values: Iterable[Any]) -> Any:
    """A Relax function of several calls that do not know each other: every call has parameters of its own, in order,
    and the function returns what each gives.
    """
    parameters: list[Any] = []
    own: list[dict[Any, Any]] = []
    listed = list(values)
    for value in listed:
        table: dict[Any, Any] = {}
        for variable in dict.fromkeys(variables(value)):
            table[variable] = relax.Var(f"p{len(parameters)}", variable.ty)
            parameters.append(table[variable])
        own.append(table)
    builder = relax.BlockBuilder()
    with builder.function("main", parameters):
        with builder.dataflow():
            results = [builder.emit(substitute(value, table)) for value, table in zip(listed, own, strict=True)]
            result = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(result)
    return builder.get()["main"]


def perturbed(module: Any, positions: Collection[int]) -> Any:
    """The module with a `main` that adds something to some of its bindings: a parameter for each follows those that it
    has, in order of the positions.
    """
    main = module["main"]
    moved = {
        variable: relax.Var(f"delta{position}", variable.ty)
        for position, (variable, _) in enumerate(bindings(main))
        if position in positions
    }
    builder = relax.BlockBuilder()
    replaced: dict[Any, Any] = {}
    with builder.function("main", [*main.params, *moved.values()]):
        with builder.dataflow():
            for variable, value in bindings(main):
                emitted = builder.emit(substitute(value, replaced))
                replaced[variable] = emitted
                if variable in moved:
                    replaced[variable] = builder.emit(relax.op.add(emitted, moved[variable]))
            result = builder.emit_output(substitute(main.body.body, replaced))
        builder.emit_func_output(result)
    functions = {gv: f for gv, f in module.functions_items() if gv.name_hint != "main"}
    written = builder.get()["main"].with_attr("global_symbol", "main")
    return relax.transform.CanonicalizeBindings()(tvm.IRModule({**functions, relax.GlobalVar("main"): written}))
