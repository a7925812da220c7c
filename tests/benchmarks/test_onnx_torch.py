"""Networks in PyTorch compute what they compute in ONNX Runtime, taken literally and with layers raised."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto

from benchmarks.workloads import HELD_OUT, build, random_inputs
from benchmarks.workloads.builder import GraphBuilder
from benchmarks.workloads.layers import batch_norm, classifier, conv

torch = pytest.importorskip("torch")
runtime = pytest.importorskip("onnxruntime")

from benchmarks.onnx_torch import array_of, tensor_of, to_torch  # noqa: E402 (needs PyTorch)
from benchmarks.onnx_torch_raise import ATTENTION, GELU, LINEAR, raised  # noqa: E402

pytestmark = pytest.mark.emulation

GPU_NETWORKS = ("resnet50", "resnext50_32x4d", "nasnet_a_mobile", "resnet50_3d", "dcgan", "bert_base")


def convolutions_3d() -> ModelProto:
    """A strided 3-D convolution with normalisation, padded on one side only before its pool."""
    b = GraphBuilder("tiny_3d")
    x = conv(b, b.input("input", (2, 3, 5, 8, 8)), (3, 6), (3, 3, 3), (1, 2, 2))
    x = b.op("Relu", batch_norm(b, x, 6))
    x = b.op("MaxPool", x, kernel_shape=[2, 2, 2], strides=[1, 1, 1], pads=[0, 0, 0, 1, 1, 1])
    b.output(classifier(b, x, 6, 4), "logits", (2, 4))
    return b.finish()


def in_onnx_runtime(model: ModelProto, inputs: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


def in_torch(model: ModelProto, inputs: dict[str, NDArray[Any]], **options: Any) -> list[NDArray[Any]]:
    with torch.no_grad():
        return [array_of(t) for t in to_torch(model, **options)(*map(tensor_of, inputs.values()))]


def error(ours: list[NDArray[Any]], expected: list[NDArray[Any]]) -> float:
    """The largest error of any output, relative to that output's largest magnitude."""
    pairs = list(zip(ours, expected, strict=True))
    assert all(a.shape == b.shape for a, b in pairs)
    return max(float(np.abs(a.astype("float64") - b).max() / np.abs(b.astype("float64")).max()) for a, b in pairs)


def check(model: ModelProto) -> None:
    inputs = random_inputs(model, seed=2)
    expected = in_onnx_runtime(model, inputs)
    assert error(in_torch(model, inputs), expected) < 2e-5
    assert error(in_torch(model, inputs, literal=True), expected) < 2e-5


@pytest.mark.parametrize("name", ["tiny_resnet", "tiny_bert", "tiny_mobilenet", "tiny_inception", "dcgan"])
def test_small_networks_agree_with_onnx_runtime(name: str) -> None:
    check(build(name, batch=2))


def test_three_dimensions_and_padding_on_one_side_agree() -> None:
    check(convolutions_3d())


@pytest.mark.slow
@pytest.mark.parametrize("name", [*GPU_NETWORKS, *HELD_OUT, "gpt2", "gpt2_step", "vit_b_16"])
def test_networks_agree_with_onnx_runtime(name: str) -> None:
    check(build(name))


def test_channels_that_are_split_agree() -> None:
    b = GraphBuilder("split")
    first, second = b.op_many("Split", 2, b.input("x", (2, 5, 3)), b.ints(2, 3), axis=1)
    b.output(b.op("Concat", second, first, axis=1), "y", (2, 5, 3))
    check(b.finish())


def test_layers_are_raised() -> None:
    encoder = Counter(node.op_type for node in raised(build("tiny_bert")).graph.node)
    assert (encoder[ATTENTION], encoder[GELU], encoder[LINEAR]) == (2, 2, 2 * 6)
    assert not {"Softmax", "Erf", "MatMul"} & set(encoder)
    assert "BatchNormalization" not in {node.op_type for node in raised(build("tiny_resnet")).graph.node}


def test_a_chain_that_is_read_elsewhere_is_left_as_it_is() -> None:
    b = GraphBuilder("shared")
    x = b.op("Conv", b.input("input", (1, 3, 4, 4)), b.normal((2, 3, 1, 1), 1.0), kernel_shape=[1, 1])
    norm = batch_norm(b, x, 2)
    b.output(b.op("Add", norm, x), "sum", (1, 2, 4, 4))
    assert "BatchNormalization" in {node.op_type for node in raised(b.finish()).graph.node}


@pytest.mark.parametrize(("dtype", "of", "most"), [("float16", "float16", 1e-2), ("bfloat16", "float32", 8e-2)])
def test_half_precision_is_near_float64_on_the_same_weights(dtype: str, of: str, most: float) -> None:
    model = build("tiny_bert", dtype=dtype)
    inputs = random_inputs(model, seed=3)
    exact = in_torch(model, inputs, dtype=torch.float64, literal=True)
    ours = in_torch(model, inputs)
    assert {a.dtype.name for a in ours} == {of} and {a.dtype.name for a in exact} == {"float64"}
    assert 1e-5 < error(ours, exact) < most


def test_an_unknown_operator_is_named() -> None:
    b = GraphBuilder("odd")
    b.output(b.op("Sin", b.input("x", (2,))), "y", (2,))
    with pytest.raises(NotImplementedError, match=r"Sin \(Sin_0\)"):
        to_torch(b.finish())
