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
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

#: Between a product and the sum with a mask.
_SCALING = frozenset(("Mul", "Div", "Reshape", "Transpose"))
_MOVEMENT = frozenset(("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Expand", "Identity"))
#: Floats beside float32; networks that have some are left as they are.
_OTHERS = frozenset((TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE))


def computed_masks(model: ModelProto) -> ModelProto:
    """The model, changed in place: what is added to scores before their softmax is computed where it is added."""
    if not _OTHERS.isdisjoint(_types(model)):
        return model
    graph = _Graph(model)
    nodes: list[NodeProto] = []
    number = np.finfo(np.float32).min
    for node in model.graph.node:
        if (position := graph.mask_of(node)) is not None:
            mask, scores = node.input[position], node.input[1 - position]
            computed, least = f"{node.output[0]}_mask", f"{node.output[0]}_least"
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(number), least))
            number = np.nextafter(number, np.float32(0))
            if graph.is_moved(mask):
                wide = f"{least}_wide"
                nodes.append(helper.make_node("Min", [scores, least], [wide], name=wide))
                least = wide
            nodes.append(helper.make_node("Max", [mask, least], [computed], name=computed))
            node.input[position] = computed
        nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


class _Graph:
    """Which of its values are scores, masks, and the arguments of a softmax."""

    def __init__(self, model: ModelProto) -> None:
        self.constants = {tensor.name for tensor in model.graph.initializer}
        self.makers = {name: node for node in model.graph.node for name in node.output}
        self.arguments = {node.input[0] for node in model.graph.node if node.op_type == "Softmax"}

    def mask_of(self, node: NodeProto) -> int | None:
        """Which operand of a sum with scores, before their softmax, is a mask; None of other nodes, and where it is
        constant or computed as it should be.
        """
        if node.op_type != "Add" or node.output[0] not in self.arguments:
            return None
        others = [position for position, name in enumerate(node.input) if not self._are_scores(name)]
        if len(others) != 1 or node.input[others[0]] in self.constants:
            return None
        maker = self.makers.get(node.input[others[0]])
        return None if maker is not None and maker.op_type in ("Constant", "Max") else others[0]

    def is_moved(self, name: str) -> bool:
        """Whether a value is another one in another shape."""
        maker = self.makers.get(name)
        return maker is not None and maker.op_type in _MOVEMENT

    def _are_scores(self, name: str) -> bool:
        while (maker := self.makers.get(name)) is not None and maker.op_type in _SCALING:
            name = next((operand for operand in maker.input if operand not in self.constants), "")
        return maker is not None and maker.op_type == "MatMul"


def _types(model: ModelProto) -> set[int]:
    """Element types of inputs and constants, and those that are converted to."""
    graph = model.graph
    found = {value.type.tensor_type.elem_type for value in graph.input}
    found |= {tensor.data_type for tensor in graph.initializer}
    casts = [node for node in graph.node if node.op_type == "Cast"]
    return found | {a.i for node in casts for a in node.attribute if a.name == "to"}
