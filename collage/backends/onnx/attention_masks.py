"""Masks of attention in a form that OpenVINO reads rightly in lower precision.

On a processor with AMX, OpenVINO 2026.4 runs attention in bfloat16 or in eight bits as one kernel (`Subgraph`). What is
added to the scores it reads as bfloat16, and where that is a tensor of float32 (an input of the model, or a value that
several layers share), all results are wrong, 140% off. What it computes itself it reads rightly. So each layer computes
its mask: as the maximum with the least number, which is the mask. Each has a least number of its own, a digit apart,
because OpenVINO computes once what is the same. A mask that was just given another shape is a case for itself: OpenVINO
would compute the maximum before, outside the kernel. There the least number has the scores' shape, which keeps the
kernel from being made: slower, and right.
"""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

#: Between a product and the sum with a mask.
_SCALING = frozenset(("Mul", "Div", "Reshape", "Transpose"))
_MOVEMENT = frozenset(("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Expand", "Identity"))


def computed_masks(model: ModelProto) -> ModelProto:
    """The model, changed in place: what is added to scores before their softmax is computed where it is added."""
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    makers = {name: node for node in graph.node for name in node.output}
    arguments = {node.input[0] for node in graph.node if node.op_type == "Softmax"}

    def are_scores(name: str) -> bool:
        while (maker := makers.get(name)) is not None and maker.op_type in _SCALING:
            name = next((operand for operand in maker.input if operand not in constants), "")
        return maker is not None and maker.op_type == "MatMul"

    nodes: list[NodeProto] = []
    number = np.finfo(np.float32).min
    for node in graph.node:
        if node.op_type == "Add" and node.output[0] in arguments:
            sides = [are_scores(name) for name in node.input]
            mask, scores = sides.index(False) if False in sides else 0, sides.index(True) if True in sides else 0
            name, maker = node.input[mask], makers.get(node.input[mask])
            if mask != scores and name not in constants and (maker is None or maker.op_type not in ("Constant", "Max")):
                computed = f"{node.output[0]}_mask"
                least = f"{computed}_least"
                graph.initializer.append(numpy_helper.from_array(np.asarray(number), least))
                number = np.nextafter(number, np.float32(0))
                if maker is not None and maker.op_type in _MOVEMENT:
                    wide = f"{computed}_wide"
                    nodes.append(helper.make_node("Min", [node.input[scores], least], [wide], name=wide))
                    least = wide
                nodes.append(helper.make_node("Max", [name, least], [computed], name=computed))
                node.input[mask] = computed
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    return model
