"""The benchmark's networks in canonical form: which operators remain, and that the numbers are ONNX Runtime's."""

from __future__ import annotations

import pytest
from frontend_cases import assert_canonical, check, operators

from benchmarks.workloads import build, random_inputs
from collage.frontend import load

#: Operators that remain, as a backend or an exporter has to know them.
CNN = {"nn.conv2d", "add", "nn.relu", "nn.max_pool2d", "mean", "reshape", "matmul"}
ENCODER = {
    *("add", "matmul", "reshape", "multiply", "permute_dims", "nn.layer_norm", "nn.softmax", "erf", "take", "astype"),
    *("subtract", "tanh", "Tuple"),
}
OPERATORS = {
    "resnet50": CNN,
    "resnext50_32x4d": CNN,
    "mobilenet_v2": {"nn.conv2d", "add", "clip", "mean", "reshape", "matmul"},
    "nasnet_a_mobile": CNN | {"nn.avg_pool2d", "concat", "nn.pad", "strided_slice", "multiply"},
    "bert_base": ENCODER,
    "minilm": ENCODER,
    "dcgan": {"nn.conv2d_transpose", "add", "nn.relu", "tanh"},
    "resnet50_3d": {name.replace("2d", "3d") for name in CNN},
    "nasrnn": {"matmul", "add", "tanh", "sigmoid", "multiply", "nn.relu"},
    "gpt2": {
        *(
            "add",
            "matmul",
            "reshape",
            "multiply",
            "permute_dims",
            "nn.layer_norm",
            "nn.softmax",
            "power",
            "take",
            "split",
        ),
        *("divide", "where", "tanh", "TupleGetItem"),
    },
    "tiny_resnet": CNN,
    "tiny_mobilenet": {"nn.conv2d", "add", "clip", "mean", "reshape", "matmul"},
    "tiny_bert": ENCODER,
}
#: Every batch normalisation of these follows a convolution that nothing else reads.
FOLDED = ("resnet50", "resnext50_32x4d", "mobilenet_v2", "resnet50_3d", "dcgan", "tiny_resnet", "tiny_mobilenet")


@pytest.mark.parametrize("name", ["tiny_resnet", "tiny_mobilenet", "tiny_bert", "dcgan", "nasrnn"])
def test_small_networks(name: str) -> None:
    proto = build(name)
    mod = check(proto, random_inputs(proto, seed=1))
    assert set(operators(mod)) <= OPERATORS[name]
    assert name not in FOLDED or "multiply" not in operators(mod)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["minilm", "mobilenet_v2", "resnet50", "nasnet_a_mobile"])
def test_large_networks_compute_what_onnx_runtime_computes(name: str) -> None:
    proto = build(name)
    check(proto, random_inputs(proto, seed=1))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in OPERATORS if not name.startswith("tiny")])
def test_operators_of_large_networks(name: str) -> None:
    proto = build(name)
    mod = load(proto)
    assert_canonical(mod)
    found = operators(mod)
    assert set(found) == OPERATORS[name]
    assert name not in FOLDED or "multiply" not in found
    convolutions = sum(node.op_type in ("Conv", "ConvTranspose") for node in proto.graph.node)
    assert sum(count for operator, count in found.items() if "conv" in operator) == convolutions
