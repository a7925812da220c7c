"""Masks of attention that OpenVINO runs in lower precision."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

from collage.backends.onnx.attention_masks import computed_masks
from collage.runtime import engines

HEADS, LENGTH, DEPTH = 4, 32, 64
SHAPE, MASK = (1, HEADS, LENGTH, DEPTH), (1, 1, 1, LENGTH)
#: What the layers add to their scores: an input, an input that is given another shape, or a value.
MASKS = ("given", "reshaped", "computed")
LAYERS = 2


def attention(form: str = "given", quantised: bool = False) -> onnx.ModelProto:
    """softmax(q k' / 8 + mask) v, and the same of the result as q; `quantised` has all products in eight bits."""
    shapes = {"q": SHAPE, "k": SHAPE, "v": SHAPE, "mask": (LENGTH,) if form == "reshaped" else MASK}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, SHAPE)
    constants = {"eighth": np.float32(0.125), "four": np.asarray([1, 1, 1, LENGTH])}
    nodes = []

    def emit(op: str, *names: str, **attributes: object) -> str:
        made = f"{op.lower()}{len(nodes)}"
        nodes.append(helper.make_node(op, list(names), [made], **attributes))
        return made

    def narrow(name: str, largest: float) -> str:
        """In symmetric int8, up to `largest`; probabilities, which are not negative, in uint8."""
        if not quantised:
            return name
        scale, zero = f"scale{len(nodes)}", f"zero{len(nodes)}"
        signed = largest > 1
        constants[scale] = np.float32(largest / (127 if signed else 255))
        constants[zero] = np.asarray(0, np.int8 if signed else np.uint8)
        return emit("DequantizeLinear", emit("QuantizeLinear", name, scale, zero), scale, zero)

    mask = "mask"
    if form == "reshaped":
        mask = emit("Reshape", mask, "four")
    elif form == "computed":
        mask = emit("Mul", mask, "eighth")
    value = "q"
    for _ in range(LAYERS):
        product = emit("MatMul", narrow(value, 4.5), emit("Transpose", narrow("k", 4.5), perm=[0, 1, 3, 2]))
        weights = emit("Softmax", emit("Add", emit("Mul", product, "eighth"), mask), axis=-1)
        value = emit("MatMul", narrow(weights, 1.0), narrow("v", 4.5))
    nodes[-1].output[0] = "y"
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "attention", inputs, [output], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def arrays(form: str = "given") -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    drawn = [rng.standard_normal(SHAPE, dtype=np.float32) for _ in range(3)]
    mask = np.where(np.arange(LENGTH) % 3 == 0, -1e4, 0).astype("float32")
    return [*drawn, mask if form == "reshaped" else mask.reshape(MASK)]


def run(model: onnx.ModelProto, given: list[np.ndarray], precision: str) -> np.ndarray:
    function = engines.create("openvino", model.SerializeToString(), {"threads": 1, "precision": precision})
    result = tvm.runtime.tensor(np.zeros(SHAPE, "float32"))
    function(*(tvm.runtime.tensor(array) for array in given), result)
    return np.asarray(result.numpy())


@pytest.mark.parametrize("form", MASKS)
@pytest.mark.parametrize(("precision", "quantised"), [("bf16", False), ("f32", True), ("bf16", True)])
def test_attention_in_lower_precision_reads_its_mask(precision: str, quantised: bool, form: str) -> None:
    """On a processor with AMX these results are 140% off otherwise."""
    given = arrays(form)
    q, k, v, mask = (array.astype("float64") for array in given)
    expected = q
    for _ in range(LAYERS):
        scores = expected @ k.transpose(0, 1, 3, 2) / 8 + mask / (8 if form == "computed" else 1)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        expected = weights / weights.sum(axis=-1, keepdims=True) @ v
    found = run(computed_masks(attention(form, quantised)), given, precision)
    assert np.linalg.norm(found - expected) <= 0.08 * np.linalg.norm(expected)


def test_only_masks_are_touched_and_once() -> None:
    model = attention()
    before = [node for node in model.graph.node if node.op_type == "Add"]
    changed = computed_masks(attention())
    onnx.checker.check_model(changed)
    after = [node for node in changed.graph.node if node.op_type == "Add"]
    assert [node.input[0] for node in after] == [node.input[0] for node in before]
    assert len({"mask", *(node.input[1] for node in after)}) == 1 + LAYERS
    assert computed_masks(onnx.ModelProto.FromString(changed.SerializeToString())) == changed


def test_networks_with_other_floats_are_left_as_they_are() -> None:
    model = attention()
    for value in model.graph.input:
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    before = model.SerializeToString()
    assert computed_masks(model).SerializeToString() == before


def test_the_masks_numbers_stay() -> None:
    given = arrays()
    given[3][..., 0] = np.finfo("float32").min
    assert np.array_equal(run(attention(), given, "f32"), run(computed_masks(attention()), given, "f32"))
