"""The user's ONNX file as one partition: an engine that reads ONNX runs the file as it is.

What is exported from Relax computes the same, but an engine may run it in another way: it recognises operators that
Relax has spelled out, and some operators can only be said in ONNX. So the file itself takes part in the contest, and
ships where no placement is faster. The partition is a candidate like others, of the whole network, with a label that
holds the digest of the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm import relax
from tvm.relax.utils import copy_with_new_vars

from collage.annotations.onnx_file import ONNX_FILE, file_label, is_file_label
from collage.backends.base import Backend
from collage.compile.rewrite.values import function_type
from collage.errors import CodegenError
from collage.frontend.source import SOURCE
from collage.graph.candidates import CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.index_set import IndexSet
from collage.graph.sub_graph import SubGraph


def whole_files(
    module: Any, graph: DataflowGraph, backends: Mapping[str, Backend]
) -> dict[str, tuple[CandidatePartition, ...]]:
    """Name of a contestant -> the placement that runs the network's file on one engine; none of a network that is of
    no file.
    """
    path = _source(module)
    if path is None:
        return {}
    inside = IndexSet(graph.coverable)
    exact = {name: backend for name, backend in backends.items() if not backend.is_less_precise}
    able = [name for name, backend in exact.items() if backend.device == "cpu" and backend.runs_file(graph)]
    label = file_label(path) if able else ""
    return {
        f"{name} on the file": (CandidatePartition(SubGraph(graph, inside), name, ((label, inside),)),) for name in able
    }


def file_partition(placement: Sequence[CandidatePartition]) -> CandidatePartition | None:
    """The partition of a placement that runs the network's file; None where none does."""
    return next((c for c in placement if any(is_file_label(label) for label, _ in c.composites)), None)


def apply_file(module: Any, candidate: CandidatePartition, symbol: str) -> Any:
    """The partitioned module whose `main` calls one function, which stands for the file.

    Raises
    ------
    CodegenError
        The file is not there any more, or is another one.
    """
    path = _source(module)
    if path is None:
        raise CodegenError(f"{candidate.backend} runs the ONNX file of the network: load it from that file")
    if file_label(path) != candidate.composites[0][0]:
        raise CodegenError(f"{path}: the file has changed since the plan was made")
    main = module["main"]
    attrs = {"Codegen": candidate.backend, "global_symbol": symbol, ONNX_FILE: str(path)}
    function = relax.Function(main.params, main.body, main.ret_ty, is_pure=True).with_attrs(attrs)
    function = copy_with_new_vars(function)
    callee = relax.GlobalVar(symbol)
    relax.expr._update_type(callee, function_type(function))
    params = [relax.Var(p.name, p.ty) for p in main.params]
    call = relax.Call(callee, params)
    several = isinstance(main.ret_ty, relax.TupleType)
    result = (relax.DataflowVar if several else relax.Var)("results", main.ret_ty)
    bindings = [relax.VarBinding(result, call)]
    value: Any = result
    if several:
        fields = [relax.Var(f"result{i}", ty) for i, ty in enumerate(main.ret_ty.fields)]
        bindings += [relax.VarBinding(f, relax.TupleGetItem(result, i)) for i, f in enumerate(fields)]
        value = relax.Tuple(fields)
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], value)
    others = {gv: f for gv, f in module.functions_items() if gv.name_hint != "main"}
    partitioned = tvm.IRModule({**others, callee: function}, attrs=module.attrs)
    whole = relax.Function(params, body, main.ret_ty, is_pure=True).with_attrs(main.attrs)
    partitioned[module.get_global_var("main")] = whole
    return relax.transform.Normalize()(partitioned)


def _source(module: Any) -> Path | None:
    """The file that a network was loaded from; None where there is none, or no more."""
    path = Path(str(module.attrs[SOURCE])) if module.attrs and SOURCE in module.attrs else None
    return path if path is not None and path.is_file() else None
