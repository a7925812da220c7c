"""What the cuDNN backend takes of real networks, what it refuses, and what its blobs say."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from cudnn_cases import CASES, Case, Weights
from tvm import relax

import collage
from benchmarks import workloads
from collage.backends.code import configuration_of
from collage.backends.cuda import base
from collage.backends.cuda.cudnn.backend import CudnnBackend
from collage.compile.rewrite import partition_function
from collage.errors import PluginError
from collage.graph.candidates import CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.from_relax import read_graph
from collage.rules.base import PartitionSpec
from collage.runtime.blob import unpack

pytestmark = pytest.mark.emulation

op, nn = relax.op, relax.op.nn


def candidates(module: Any) -> tuple[DataflowGraph, list[CandidatePartition]]:
    graph, rule = read_graph(module), CudnnBackend().rule()
    return graph, rule.all_candidates(graph, PartitionSpec(rule, "cudnn"))


def widest(module: Any) -> dict[int, tuple[str, str]]:
    """Anchor (first node of a candidate) -> label and operators of the largest candidate that starts there."""
    found: dict[int, CandidatePartition] = {}
    for candidate in candidates(module)[1]:
        first = next(iter(candidate.sub_graph.inside))
        if first not in found or len(candidate.sub_graph.inside) > len(found[first].sub_graph.inside):
            found[first] = candidate
    return {first: (c.composites[0][0], c.sub_graph.label) for first, c in found.items()}


def header_of(module: Any, **settings: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and tensors of the largest candidate's blob."""
    graph, found = candidates(module)
    backend = CudnnBackend(**settings)
    largest = max(found, key=lambda c: len(c.sub_graph.inside))
    return unpack(backend.engine_blob(partition_function(graph, largest, backend, "partition").function))


def test_every_convolution_of_a_resnet_is_found_with_all_that_follows_it() -> None:
    found = widest(collage.load(workloads.build("tiny_resnet")))
    assert Counter(found.values()) == {
        ("cudnn.conv_add_act", "conv2d+add+relu"): 7,
        ("cudnn.conv_add_add_act", "conv2d+add+add+relu"): 5,
        ("cudnn.pool", "max_pool2d"): 1,
        ("cudnn.pool", "mean"): 1,
    }


def test_both_summands_of_a_residual_may_be_the_convolution() -> None:
    """A block whose shortcut is a convolution: either of the two can take the sum, and the relu after it."""
    graph, found = candidates(collage.load(workloads.build("tiny_resnet")))
    sums = [i for i in graph.coverable if graph.nodes[i].op == "relax.add" and len(graph.data_inputs[i]) == 2]
    wide = [c for c in found if c.composites[0][0] == "cudnn.conv_add_add_act"]
    takers = [sum(1 for c in wide if i in c.sub_graph.inside) for i in sums]
    assert sorted(takers) == [1, 2, 2]


def test_relu6_and_depthwise_convolutions_of_a_mobilenet_are_found() -> None:
    found = widest(collage.load(workloads.build("tiny_mobilenet")))
    assert Counter(label for label, _ in found.values()) == {
        "cudnn.conv_add_act": 7,
        "cudnn.conv_add_add": 2,
        "cudnn.conv_add": 1,
        "cudnn.pool": 1,
    }


def test_transposed_convolutions_are_found_with_their_activations() -> None:
    found = widest(collage.load(workloads.build("dcgan")))
    assert Counter(found.values()) == {
        ("cudnn.conv_transpose_add_act", "conv2d_transpose+add+relu"): 4,
        ("cudnn.conv_transpose_act", "conv2d_transpose+tanh"): 1,
    }


def test_of_a_transformer_in_float32_rows_only() -> None:
    found = widest(collage.load(workloads.build("tiny_bert")))
    assert Counter(label for label, _ in found.values()) == {"cudnn.norm": 5, "cudnn.softmax": 2}


def attention(dtype: str = "float16", head: int = 16) -> Any:
    """An attention of 2 heads as the frontend leaves it, from batch x sequence x heads x head."""

    def body(emit: Any, w: Weights, q: Any, k: Any, v: Any, mask: Any) -> Any:
        q, v = (emit(op.permute_dims(value, [0, 2, 1, 3])) for value in (q, v))
        scores = emit(op.matmul(q, emit(op.permute_dims(k, [0, 2, 3, 1]))))
        scores = emit(op.multiply(scores, relax.const(0.25, w.dtype)))
        weights = emit(nn.softmax(emit(op.add(scores, mask)), -1))
        return op.permute_dims(emit(op.matmul(weights, v)), [0, 2, 1, 3])

    shape = (1, 8, 2, head)
    return Case(body, (shape, shape, shape, (1, 1, 1, 8)), "cudnn.attention").module(dtype)


def test_attention_in_half_precision_is_one_partition_with_its_transpositions() -> None:
    graph, found = candidates(attention())
    wide = [c for c in found if c.composites[0][0] == "cudnn.attention"]
    assert max(wide, key=lambda c: len(c.sub_graph.inside)).sub_graph.inside == graph.coverable
    # Those of the queries, the values and the result may stay outside; that of the keys may not.
    assert len(wide) == 8
    header, _ = header_of(attention())
    assert header["op"] == "attention" and header["scale"] == 0.25
    operands = header["operands"]
    heads_apart = {"dims": [1, 2, 8, 16], "strides": [256, 16, 32, 1]}
    assert all({key: operands[role][key] for key in heads_apart} == heads_apart for role in "qkv")
    # The mask is broadcast by standing still, as PyTorch hands masks to cuDNN.
    assert operands["mask"] == {"arg": 3, "dims": [1, 2, 8, 8], "strides": [0, 0, 0, 1], "dtype": "float16"}
    assert header["result"]["strides"] == [256, 16, 32, 1]


@pytest.mark.parametrize("unfit", [{"dtype": "float32"}, {"head": 12}])
def test_attention_that_cudnn_has_no_kernel_for_is_not_taken(unfit: dict[str, Any]) -> None:
    assert {c.composites[0][0] for c in candidates(attention(**unfit))[1]} == {"cudnn.softmax"}


@pytest.mark.parametrize(
    ("condition", "low", "taken"),
    [
        (np.tri(8, dtype=np.bool_), -65504.0, True),
        (np.tri(8, dtype=np.bool_)[None, None], -1e4, True),
        (np.tri(8, dtype=np.bool_), 0.0, False),
        (np.tri(8, k=-1, dtype=np.bool_), -65504.0, False),  # nothing is left to the first query
    ],
)
def test_a_selection_is_a_mask_where_it_hides_some_keys(condition: np.ndarray, low: float, taken: bool) -> None:
    def body(emit: Any, w: Weights, q: Any, k: Any, v: Any) -> Any:
        scores = emit(op.matmul(q, emit(op.permute_dims(k, [0, 1, 3, 2]))))
        kept = emit(op.where(relax.const(condition), scores, relax.const(low, w.dtype)))
        return op.matmul(emit(nn.softmax(kept, -1)), v)

    graph, found = candidates(Case(body, ((1, 2, 8, 16),) * 3, "cudnn.attention").module("float16"))
    whole = [c for c in found if c.sub_graph.inside == graph.coverable]
    assert [c.composites[0][0] for c in whole] == (["cudnn.attention"] if taken else [])


def test_attention_whose_heads_begin_between_multiples_of_16_bytes_is_not_taken() -> None:
    def body(emit: Any, w: Weights, x: Any) -> Any:
        q, k, v = (emit(op.strided_slice(x, [3], [begin], [begin + 16])) for begin in (0, 20, 40))
        q, v = (emit(op.permute_dims(part, [0, 2, 1, 3])) for part in (q, v))
        scores = emit(op.matmul(q, emit(op.permute_dims(k, [0, 2, 3, 1]))))
        return op.matmul(emit(nn.softmax(scores, -1)), v)

    graph, found = candidates(Case(body, ((1, 8, 2, 56),), "cudnn.attention").module("float16"))
    taken = [set(c.sub_graph.inside) for c in found if c.composites[0][0] == "cudnn.attention"]
    of_queries, of_keys, of_values = (node.index for node in graph.nodes if node.op == "relax.strided_slice")
    assert any({of_queries, of_values} <= inside for inside in taken)  # from elements 0 and 40 on
    assert not any(of_keys in inside for inside in taken)  # from element 20 on


def test_the_header_of_a_convolution() -> None:
    header, tensors = header_of(CASES["grouped and dilated"].module())
    assert header["op"] == "conv"
    assert (header["stride"], header["dilation"], header["groups"]) == ([1, 2], [2, 1], 2)
    assert (header["pre_padding"], header["post_padding"]) == ([2, 0], [1, 1])
    assert header["operands"]["x"] == {"arg": 0, "dims": [2, 4, 9, 7], "strides": [252, 63, 7, 1], "dtype": "float32"}
    assert header["operands"]["w"]["dims"] == [6, 2, 3, 2]
    assert header["result"] == {"arg": 1, "dims": [2, 6, 8, 4], "strides": [192, 32, 4, 1], "dtype": "float32"}
    assert (header["arguments"], header["epilogue"], header["precision"]) == (2, [], "float32")
    assert tensors["w"].shape == (6, 2, 3, 2)


def test_channels_last_is_in_the_strides_and_in_the_weights() -> None:
    header, _ = header_of(CASES["channels last"].module())
    x, w, bias, residual = (header["operands"][role] for role in ("x", "w", "bias", "residual"))
    assert (x["dims"], x["strides"]) == ([2, 4, 9, 7], [252, 1, 28, 4])
    assert (w["dims"], w["strides"]) == ([6, 4, 3, 3], [36, 1, 12, 4])
    assert (bias["dims"], bias["strides"]) == ([1, 6, 1, 1], [6, 1, 6, 6])
    assert residual == {"arg": 1, **{key: header["result"][key] for key in ("dims", "strides", "dtype")}}
    assert header["epilogue"] == [{"mode": "add", "operand": r} for r in ("bias", "residual")] + [{"mode": "relu"}]
    header, other = header_of(CASES["kernel of another layout"].module())
    assert header["operands"]["w"]["dims"] == [5, 4, 3, 2] and other["w"].shape == (5, 3, 2, 4)
    assert header["epilogue"] == [{"mode": "leaky_relu", "slope": pytest.approx(0.1)}]


def test_one_spatial_axis_becomes_two() -> None:
    header, _ = header_of(CASES["one dimension"].module())
    assert header["operands"]["x"]["dims"] == [2, 4, 1, 15] and header["operands"]["w"]["dims"] == [6, 4, 1, 3]
    assert (header["stride"], header["dilation"]) == ([1, 2], [1, 2])
    assert (header["pre_padding"], header["post_padding"]) == ([0, 1], [0, 2])


def test_the_kernel_of_a_transposed_convolution_is_the_forward_one() -> None:
    header, _ = header_of(CASES["transposed"].module())
    assert header["op"] == "conv_transpose"
    assert header["operands"]["w"]["dims"] == [4, 6, 4, 4], "filters of the forward convolution are the input channels"
    assert header["result"]["dims"] == [2, 6, 19, 14]


def test_a_normalisation_is_rows_with_weights_of_float32() -> None:
    module = Case(lambda emit, w, x: nn.layer_norm(x, w(8), w(8), axes=[-1]), ((4, 3, 8),), "").module("float16")
    header, tensors = header_of(module)
    assert header["operands"]["x"]["dims"] == [12, 8, 1, 1] and header["operands"]["x"]["dtype"] == "float16"
    assert header["operands"]["scale"]["dtype"] == "float32" and tensors["scale"].dtype == np.float32
    assert header["epsilon"] == pytest.approx(1e-5)


#: Networks of which the backend takes nothing, or not the last operator.
REFUSED = {
    "double precision": Case(lambda emit, w, x: nn.conv2d(x, w(6, 4, 3, 3)), ((2, 4, 9, 7),), "float64"),
    "another dtype": Case(
        lambda emit, w, x: nn.conv2d(x, w(6, 4, 3, 3), out_dtype="float32"), ((2, 4, 9, 7),), "float16"
    ),
    "kernel that would have to be rearranged": Case(
        lambda emit, w, x, k: nn.conv2d(x, k, kernel_layout="HWIO"), ((2, 4, 9, 7), (3, 3, 4, 6)), "float32"
    ),
    "dilated window": Case(lambda emit, w, x: nn.max_pool2d(x, (2, 2), dilation=(2, 2)), ((2, 4, 9, 7),), "float32"),
    "padding counted in a window beyond it": Case(
        lambda emit, w, x: nn.avg_pool2d(x, (2, 2), (2, 2), ceil_mode=True, count_include_pad=True),
        ((2, 4, 9, 7),),
        "float32",
    ),
    "several windows": Case(lambda emit, w, x: nn.adaptive_avg_pool2d(x, (3, 1)), ((2, 4, 9, 7),), "float32"),
    "mean over the channels": Case(lambda emit, w, x: op.mean(x, [1]), ((2, 4, 9, 7),), "float32"),
    "normalisation over the channels": Case(
        lambda emit, w, x: nn.layer_norm(x, w(4), w(4), axes=[1]), ((2, 4, 9),), "float32"
    ),
    "scale that is an input": Case(lambda emit, w, x, s: nn.rms_norm(x, s, axes=[-1]), ((2, 8), (8,)), "float32"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cudnn_computes_otherwise_or_not_at_all_is_not_taken(name: str) -> None:
    case = REFUSED[name]
    assert candidates(case.module(case.label))[1] == []


def after_convolution(body: Any, *shapes: tuple[int, ...]) -> list[str]:
    """Labels of what is taken where something follows a convolution."""

    def network(emit: Any, w: Weights, x: Any, *others: Any) -> Any:
        return body(emit, w, emit(nn.conv2d(x, w(6, 4, 3, 3), padding=(1, 1))), *others)

    found = candidates(Case(network, ((2, 4, 9, 7), *shapes), "").module())[1]
    return sorted(c.sub_graph.label for c in found)


def test_of_an_epilogue_only_what_cudnn_computes_is_taken() -> None:
    plane = (1, 1, 9, 7)
    assert after_convolution(lambda emit, w, y, z: op.add(y, z), plane) == ["conv2d"], "a sum of another shape"
    assert after_convolution(lambda emit, w, y: op.add(y, y)) == ["conv2d"], "a sum with itself"
    assert after_convolution(lambda emit, w, y: op.exp(y)) == ["conv2d"]
    gate = after_convolution(lambda emit, w, y, z: op.multiply(z, emit(op.sigmoid(y))), (2, 6, 9, 7))
    assert gate == ["conv2d", "conv2d+sigmoid"], "the gate of something else"
    full = (2, 6, 9, 7)
    twice = after_convolution(lambda emit, w, y, a, b: op.add(emit(op.add(y, a)), b), full, full)
    assert twice == ["conv2d", "conv2d+add"], "one residual"


def test_tf32_is_asked_for_and_part_of_the_key() -> None:
    assert header_of(CASES["convolution"].module(), precision="tf32")[0]["precision"] == "tf32"
    exact, rounded = configuration_of(CudnnBackend()), configuration_of(CudnnBackend(precision="tf32"))
    assert exact["code"] == rounded["code"] and exact["precision"] != rounded["precision"]
    assert CudnnBackend().tolerance == 0 < CudnnBackend(precision="tf32").tolerance
    with pytest.raises(PluginError, match="precision"):
        CudnnBackend(precision="fp8").configuration()


def test_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "cuda_exists", lambda: False)
    assert "no CUDA device" in CudnnBackend().availability().reason
    monkeypatch.setattr(base, "cuda_exists", lambda: True)
    monkeypatch.setattr(base.native, "is_installed", lambda library: False)
    assert "libcudnn.so.9 is not installed" in CudnnBackend().availability().reason
