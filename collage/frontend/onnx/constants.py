"""Evaluating ONNX nodes whose inputs are all known, with the reference implementation that ONNX ships.

Exported transformers spell shapes and attention masks as long chains of small operators; with static shapes they
start at constants, and evaluating them while importing leaves nothing of them. Only operators for which that is
exact and cheap are evaluated here; other constant expressions are left to Relax's constant folding.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

_NAMES = """
Abs Add And ArgMax ArgMin Cast CastLike Ceil Clip Compress Concat ConstantOfShape CumSum Div Equal Expand EyeLike
Flatten Floor Gather GatherElements GatherND Greater GreaterOrEqual Identity IsInf IsNaN Less LessOrEqual Max Min
Mod Mul Neg NonZero Not OneHot Or Pad Pow Range ReduceMax ReduceMin ReduceProd ReduceSum Reciprocal Reshape Round
ScatterElements ScatterND Sign Size Slice Split Sqrt Squeeze Sub Tile Transpose Trilu Unsqueeze Where Xor
"""

#: Data movement, shape arithmetic, masks and comparisons.
EVALUATED = frozenset(_NAMES.split())


def evaluate(node: onnx.NodeProto, inputs: Sequence[np.ndarray | None], opset: int) -> list[np.ndarray]:
    """The outputs of a node of the standard domain, given all its inputs (None: an optional one left out)."""
    given = {name: array for name, array in zip(node.input, inputs, strict=False) if name and array is not None}
    arguments = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given.items()
    ]
    results = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "node", arguments, results)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    values = iter(ReferenceEvaluator(model).run(None, given))
    return [np.asarray(next(values), order="C") if name else np.zeros((), "float32") for name in node.output]
