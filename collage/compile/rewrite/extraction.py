"""Extraction: a sub-graph as a module of its own, which is described, exported and measured."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from collage.annotations.precision import UNKNOWN, with_ranges
from collage.compile.rewrite.body import Body, ordered_inputs, ordered_outputs
from collage.graph.sub_graph import SubGraph


def extract(module: Any, sub_graph: SubGraph) -> Any:
    """The sub-graph as a module of its own: `main` takes its inputs and returns its exits, weights bound as
    constants.
    """
    inputs, outputs = ordered_inputs(sub_graph), ordered_outputs(sub_graph)
    body = Body(sub_graph.graph)
    params = body.parameters(inputs)
    func = body.function(params, sub_graph.inside, outputs).with_attr("global_symbol", "main")
    functions = {gv: f for gv, f in module.functions_items() if isinstance(f, tvm.tirx.PrimFunc)}
    result = tvm.IRModule({**functions, relax.GlobalVar("main"): func})
    result = relax.transform.Normalize()(result)
    nodes = sub_graph.graph.nodes
    if any(nodes[i].range != UNKNOWN for i in (*inputs, *sub_graph.inside)):
        result = with_ranges(result, [*body.ranges(inputs), *(nodes[i].range for i in sub_graph.inside)])
    return relax.transform.DeadCodeElimination(["main"])(result) if functions else result
