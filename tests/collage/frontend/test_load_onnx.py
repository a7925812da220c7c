"""ONNX operators arrive as high-level Relax operators, constants and shape arithmetic are folded, and numbers stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from frontend_cases import (
    BOOL,
    FLOAT,
    INT64,
    assert_canonical,
    batch_norm_weights,
    check,
    model,
    node,
    normal,
    operators,
    run,
    save,
)
from onnx import helper

from collage.frontend import TensorSpec, input_specs, load, output_specs

X = {"x": (FLOAT, [2, 3, 4, 5])}


def scalar(value: Any, dtype: str = "float32") -> np.ndarray:
    return np.array(value, dtype)


def one(
    operator: str, opset: int = 17, weights: dict[str, np.ndarray] | None = None, **attributes: Any
) -> onnx.ModelProto:
    """A model of one node, of x and the given weights (an empty name where None)."""
    names = [name if array is not None else "" for name, array in (weights or {}).items()]
    kept = {name: array for name, array in (weights or {}).items() if array is not None}
    return model([node(operator, ["x", *names], ["y"], **attributes)], X, {"y": FLOAT}, kept, opset)


ONE_OPERATOR = {
    "clip": (one("Clip", weights={"lo": scalar(-0.5), "hi": scalar(0.25)}), "clip"),
    "clip with attributes": (one("Clip", opset=6, min=-0.5, max=0.25), "clip"),
    "clip at 0 and 6": (one("Clip", weights={"lo": scalar(0), "hi": scalar(6)}), "clip"),
    "clip at 0 and infinity": (one("Clip", weights={"lo": scalar(0), "hi": scalar(np.inf)}), "nn.relu"),
    "clip below": (one("Clip", weights={"lo": scalar(-0.5)}), "maximum"),
    "clip above": (one("Clip", weights={"lo": None, "hi": scalar(0.5)}), "minimum"),
    "pad": (one("Pad", weights={"p": np.array([0, 0, 1, 2, 0, 1, 0, 3]), "c": scalar(1.5)}), "nn.pad"),
    "pad with attributes": (one("Pad", opset=10, pads=[0, 0, 1, 2, 0, 0, 0, 3], value=0.5), "nn.pad"),
    "pad that crops": (one("Pad", weights={"p": np.array([0, 0, -1, 2, 0, 0, 0, -1])}), "nn.pad"),
    "pad of some axes": (
        one("Pad", opset=18, weights={"p": np.array([1, 2]), "c": None, "a": np.array([-1])}),
        "nn.pad",
    ),
    "pad by reflection": (one("Pad", weights={"p": np.array([0, 0, 1, 2, 0, 0, 0, 3])}, mode="reflect"), "nn.pad"),
    "pad by the edge": (one("Pad", weights={"p": np.array([0, 0, 1, 2, 0, 0, 0, 3])}, mode="edge"), "nn.pad"),
    "tile": (one("Tile", weights={"r": np.array([1, 1, 1, 3])}), "take"),
    "gather": (one("Gather", weights={"i": np.array([[0, -1], [2, -3]])}, axis=1), "take"),
    "gather one": (one("Gather", weights={"i": np.array(-2)}, axis=-1), "take"),
    "einsum": (one("Einsum", weights={"w": normal(5, 6)}, equation="abcd, de -> abce"), "einsum"),
    "cast": (
        model([node("Cast", ["x"], ["y"], to=INT64)], X, {"y": INT64}),
        "astype",
    ),
    "softmax of the last axis, old": (one("Softmax", opset=11, axis=3), "nn.softmax"),
    "log softmax": (one("LogSoftmax", axis=1), "nn.log_softmax"),
    "instance norm": (one("InstanceNormalization", weights={"s": normal(3), "b": normal(3)}), "nn.instance_norm"),
    "layer norm": (one("LayerNormalization", weights={"s": normal(4, 5), "b": normal(4, 5)}, axis=2), "nn.layer_norm"),
    "layer norm without bias": (one("LayerNormalization", weights={"s": normal(5)}), "nn.layer_norm"),
    "max": (one("Max", weights={"w": normal(5)}), "maximum"),
    "min": (one("Min", weights={"w": normal(4, 1)}), "minimum"),
    "sum": (one("Sum", weights={"w": normal(3, 1, 1)}), "add"),
    "power": (one("Pow", weights={"e": np.array(2, "int64")}), "power"),
    "flatten": (one("Flatten", axis=2), "reshape"),
    "squeeze": (
        model([node("Unsqueeze", ["x", "a"], ["y"])], X, {"y": FLOAT}, {"a": np.array([0, 3])}),
        "reshape",
    ),
    "global average": (one("GlobalAveragePool"), "mean"),
    "same padding": (
        one("Conv", weights={"w": normal(4, 3, 2, 3)}, auto_pad="SAME_LOWER", strides=[1, 2]),
        "nn.conv2d",
    ),
    "same pooling": (one("MaxPool", kernel_shape=[3, 2], auto_pad="SAME_UPPER", strides=[2, 2]), "nn.max_pool2d"),
    "transposed to a shape": (
        one("ConvTranspose", weights={"w": normal(3, 4, 3, 3)}, strides=[2, 3], output_shape=[8, 14]),
        "nn.conv2d_transpose",
    ),
}


def test_tiles_of_several_axes_are_look_ups() -> None:
    """TVM compiles `tile` of these to wrong numbers on processors with wide vectors."""
    assert operators(check(one("Tile", weights={"r": np.array([7, 6, 4, 2])}), {"x": normal(2, 3, 4, 5)})) == {
        "take": 4
    }


@pytest.mark.parametrize("case", ONE_OPERATOR)
def test_one_node_is_one_operator(case: str) -> None:
    proto, expected = ONE_OPERATOR[case]
    assert operators(check(proto, {"x": normal(2, 3, 4, 5)})) == {expected: 1}


SEVERAL_OPERATORS = {
    "softmax over the rest, old": (one("Softmax", opset=11, axis=1), {"reshape": 2, "nn.softmax": 1}),
    "mean": (one("Mean", weights={"w": normal(5)}), {"add": 1, "divide": 1}),
    "gemm": (
        model(
            [node("Gemm", ["x", "w", "c"], ["y"], transB=1, alpha=0.5, beta=2.0)],
            {"x": (FLOAT, [3, 4])},
            {"y": FLOAT},
            {"w": normal(5, 4), "c": normal(5)},
        ),
        {"matmul": 1, "add": 1},
    ),
    "convolution with bias": (
        one("Conv", weights={"w": normal(4, 3, 2, 2), "b": normal(4)}),
        {"nn.conv2d": 1, "add": 1},
    ),
    "reverse running sum": (
        one("CumSum", weights={"a": np.array(2)}, reverse=1, exclusive=1),
        {"flip": 2, "cumsum": 1},
    ),
    "celu, by its definition": (one("Celu", alpha=0.7), None),
    "elu": (one("Elu", alpha=0.7), None),
}


@pytest.mark.parametrize("case", SEVERAL_OPERATORS)
def test_one_node_of_several_operators(case: str) -> None:
    proto, expected = SEVERAL_OPERATORS[case]
    inputs = {
        value.name: normal(*[d.dim_value for d in value.type.tensor_type.shape.dim]) for value in proto.graph.input
    }
    found = operators(check(proto, inputs))
    assert expected is None or found == expected


def test_bounds_that_are_no_number_bound_nothing() -> None:
    proto = one("Clip", weights={"lo": scalar(np.nan), "hi": scalar(0.5)})
    assert operators(load(proto)) == {"minimum": 1}


def test_bounds_that_are_computed_stay_computed() -> None:
    nodes = [node("Neg", ["h"], ["l"]), node("Clip", ["x", "l", "h"], ["y"])]
    proto = model(nodes, {**X, "h": (FLOAT, [])}, {"y": FLOAT})
    mod = check(proto, {"x": normal(2, 3, 4, 5), "h": scalar(0.5)})
    assert operators(mod) == {"negative": 1, "maximum": 1, "minimum": 1}


def test_negative_indices_at_run_time() -> None:
    proto = model([node("Gather", ["w", "i"], ["y"])], {"i": (INT64, [4])}, {"y": FLOAT}, {"w": normal(5, 3)})
    assert operators(check(proto, {"i": np.array([0, -1, 4, -5])})) == {"take": 1}


def test_shape_arithmetic_leaves_no_trace() -> None:
    """What PyTorch's exporter writes for `x.view(x.size(0), 2, -1)`."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Constant", [], ["zero"], value_int=0),
        node("Gather", ["s", "zero"], ["n"]),
        node("Constant", [], ["axes"], value_ints=[0]),
        node("Unsqueeze", ["n", "axes"], ["n1"]),
        node("Concat", ["n1", "rest"], ["t"], axis=0),
        node("Reshape", ["x", "t"], ["y"]),
    ]
    proto = model(nodes, {"x": (FLOAT, ["batch", 3, 4, 5])}, {"y": FLOAT}, {"rest": np.array([2, -1])})
    assert operators(check(proto, {"x": normal(6, 3, 4, 5)}, x=(6, 3, 4, 5))) == {"reshape": 1}


def test_a_causal_mask_becomes_a_constant() -> None:
    """GPT-2's mask as exporters write it: ranges of a shape, a comparison, a cast, a selection, an expansion."""
    nodes = [
        node("Shape", ["x"], ["s"], start=-1),
        node("Squeeze", ["s"], ["length"]),
        node("Range", ["zero", "length", "one"], ["r"]),
        node("Unsqueeze", ["r", "axis"], ["column"]),
        node("Greater", ["r", "column"], ["later"]),
        node("Cast", ["later"], ["later1"], to=FLOAT),
        node("Cast", ["later1"], ["later2"], to=BOOL),
        node("Where", ["later2", "low", "none"], ["mask"]),
        node("Shape", ["x"], ["whole"]),
        node("Expand", ["mask", "whole"], ["mask1"]),
        node("IsNaN", ["mask1"], ["bad"]),
        node("Where", ["bad", "none", "mask1"], ["mask2"]),
        node("Add", ["x", "mask2"], ["y"]),
    ]
    weights = {
        "zero": np.array(0),
        "one": np.array(1),
        "axis": np.array([1]),
        "low": scalar(-1e9),
        "none": scalar(0),
    }
    proto = model(nodes, {"x": (FLOAT, [2, 4, 4])}, {"y": FLOAT}, weights)
    assert operators(check(proto, {"x": normal(2, 4, 4)})) == {"add": 1}


def test_constant_floating_point_arithmetic_is_folded() -> None:
    nodes = [node("Exp", ["w"], ["a"]), node("MatMul", ["a", "v"], ["b"]), node("Add", ["x", "b"], ["y"])]
    proto = model(nodes, {"x": (FLOAT, [3, 2])}, {"y": FLOAT}, {"w": normal(3, 4), "v": normal(4, 2)})
    assert operators(check(proto, {"x": normal(3, 2)})) == {"add": 1}


def test_64_bit_constants_keep_their_width() -> None:
    """`relax.const` would make int32 of them."""
    proto = model([node("Add", ["x", "w"], ["y"])], {"x": (INT64, [2])}, {"y": INT64}, {"w": np.array([2**40, -1])})
    check(proto, {"x": np.array([1, 2**41])})
    double = model(
        [node("Mul", ["x", "w"], ["y"])],
        {"x": (onnx.TensorProto.DOUBLE, [2])},
        {"y": onnx.TensorProto.DOUBLE},
        {"w": np.array([1 / 3, np.pi])},
    )
    result = run(load(double), {"x": np.array([3.0, 1.0])})
    np.testing.assert_array_equal(result[0], np.array([1.0, np.pi]))


def test_what_changes_nothing_goes() -> None:
    nodes = [
        node("Identity", ["x"], ["a"]),
        node("Dropout", ["a"], ["b"]),
        node("Cast", ["b"], ["c"], to=FLOAT),
        node("Transpose", ["c"], ["d"], perm=[0, 2, 1, 3]),
        node("Transpose", ["d"], ["e"], perm=[0, 2, 1, 3]),
        node("Reshape", ["e", "flat"], ["f"]),
        node("Reshape", ["f", "back"], ["g"]),
        node("Add", ["g", "zero"], ["h"]),
        node("Slice", ["h", "start", "end"], ["i"]),
        node("Relu", ["i"], ["y"]),
        node("Exp", ["x"], ["unused"]),
    ]
    weights = {
        "flat": np.array([-1]),
        "back": np.array([2, 3, 4, 5]),
        "zero": scalar(0),
        "start": np.array([0]),
        "end": np.array([9]),
    }
    assert operators(check(model(nodes, X, {"y": FLOAT}, weights), {"x": normal(2, 3, 4, 5)})) == {"nn.relu": 1}


@pytest.mark.parametrize(("parts", "left"), [(["none", "r", "none"], 0), (["r", "none", "x"], 1)])
def test_what_is_empty_adds_nothing_to_a_concatenation(parts: list[str], left: int) -> None:
    nodes = [node("Relu", ["x"], ["r"]), node("Concat", parts, ["y"], axis=1)]
    proto = model(nodes, {"x": (FLOAT, (1, 4))}, {"y": FLOAT}, {"none": np.zeros((1, 0), "float32")})
    mod = check(proto, {"x": normal(1, 4)})
    assert operators(mod) == {"nn.relu": 1, **({"concat": 1} if left else {})}
    assert "GenericConst" not in str(mod["main"])


def test_a_split_whose_last_part_is_empty_is_slices() -> None:
    """A rotary embedding of all channels splits nothing off."""
    nodes = [
        node("Split", ["x", "sizes"], ["a", "b", "none"], axis=1),
        node("Mul", ["a", "b"], ["p"]),
        node("Concat", ["p", "none"], ["y"], axis=1),
    ]
    proto = model(nodes, {"x": (FLOAT, (1, 4))}, {"y": FLOAT}, {"sizes": np.array([2, 2, 0])})
    assert operators(check(proto, {"x": normal(1, 4)})) == {"strided_slice": 2, "multiply": 1}


def test_a_reversing_slice_is_no_identity() -> None:
    weights = {"s": np.array([-1]), "e": np.array([-9]), "a": np.array([3]), "k": np.array([-1])}
    proto = model([node("Slice", ["x", "s", "e", "a", "k"], ["y"])], X, {"y": FLOAT}, weights)
    assert operators(check(proto, {"x": normal(2, 3, 4, 5)})) == {"strided_slice": 1}


def test_equal_calls_are_one() -> None:
    nodes = [node("Exp", ["x"], ["a"]), node("Exp", ["x"], ["b"]), node("Mul", ["a", "b"], ["y"])]
    assert operators(check(model(nodes, X, {"y": FLOAT}), {"x": normal(2, 3, 4, 5)})) == {"exp": 1, "multiply": 1}


def branches(condition: str) -> onnx.NodeProto:
    """An If whose branches read a value of the graph around them, one of them with a tensor of its own."""
    results = [helper.make_tensor_value_info("r", FLOAT, None)]
    own = onnx.numpy_helper.from_array(scalar(2), "k")
    then_branch = helper.make_graph([node("Mul", ["t", "k"], ["r"])], "then", [], results, [own])
    else_branch = helper.make_graph([node("Neg", ["t"], ["r"])], "else", [], results)
    return node("If", [condition], ["y"], then_branch=then_branch, else_branch=else_branch)


@pytest.mark.parametrize(("extent", "expected"), [(4, "multiply"), (3, "negative")])
def test_a_branch_that_a_shape_decides_is_taken(extent: int, expected: str) -> None:
    nodes = [
        node("Exp", ["x"], ["t"]),
        node("Size", ["x"], ["n"]),
        node("Equal", ["n", "four"], ["c"]),
        branches("c"),
    ]
    proto = model(nodes, {"x": (FLOAT, ["n"])}, {"y": FLOAT}, {"four": np.array(4)})
    assert operators(check(proto, {"x": normal(extent)}, x=(extent,))) == {"exp": 1, expected: 1}


def test_functions_of_the_model_are_inlined() -> None:
    body = [
        helper.make_node("LeakyRelu", ["a"], ["t"]),
        helper.make_node("Add", ["t", "b"], ["c"]),
    ]
    reference = onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    body[0].attribute.append(reference)
    opsets = [helper.make_opsetid("", 17)]
    function = helper.make_function("mine", "Scaled", ["a", "b"], ["c"], body, opsets, ["slope"])
    call = helper.make_node("Scaled", ["x", "w"], ["y"], domain="mine", slope=0.3)
    proto = model(
        [call],
        X,
        {"y": FLOAT},
        {"w": normal(5)},
        functions=[function],
        opset_imports=[*opsets, helper.make_opsetid("mine", 1)],
    )
    assert operators(check(proto, {"x": normal(2, 3, 4, 5)})) == {"nn.leakyrelu": 1, "add": 1}


def test_several_outputs_are_a_flat_tuple_in_order() -> None:
    nodes = [node("Split", ["x"], ["a", "b", "c"], axis=1), node("Relu", ["b"], ["r"])]
    mod = check(model(nodes, X, {"c": FLOAT, "r": FLOAT, "a": FLOAT}), {"x": normal(2, 3, 4, 5)})
    assert output_specs(mod) == [TensorSpec(name, (2, 1, 4, 5), "float32") for name in ("c", "r", "a")]


def test_outputs_that_are_inputs_or_constants_stay_what_they_are() -> None:
    weights = {"w": normal(2, 2)}
    nodes = [node("Identity", ["x"], ["same"]), node("Identity", ["w"], ["fixed"]), node("Relu", ["x"], ["y"])]
    check(model(nodes, X, {"same": FLOAT, "fixed": FLOAT, "y": FLOAT}, weights), {"x": normal(2, 3, 4, 5)})
    check(model(nodes, X, {"same": FLOAT}, weights), {"x": normal(2, 3, 4, 5)})
    check(model(nodes, X, {"fixed": FLOAT}, weights), {"x": normal(2, 3, 4, 5)})


def test_names_are_kept_whatever_characters_they_have() -> None:
    proto = model([node("Relu", ["x.1/in:0"], ["y.1"])], {"x.1/in:0": (FLOAT, [2])}, {"y.1": FLOAT})
    mod = check(proto, {"x.1/in:0": normal(2)})
    assert [str(spec) for spec in (*input_specs(mod), *output_specs(mod))] == [
        "x.1/in:0: float32[2]",
        "y.1: float32[2]",
    ]


def test_initializers_listed_as_inputs_are_weights() -> None:
    """Until IR version 3 every initializer had to be listed among the inputs."""
    proto = model(
        [node("Add", ["x", "w"], ["y"])], {"x": (FLOAT, [2, 3]), "w": (FLOAT, [3])}, {"y": FLOAT}, {"w": normal(3)}
    )
    proto.ir_version = 3
    mod = load(proto)
    assert_canonical(mod)
    assert [spec.name for spec in input_specs(mod)] == ["x"]


def test_layer_normalisation_gives_mean_and_deviation_too() -> None:
    nodes = [node("LayerNormalization", ["x", "s"], ["y", "mean", "inverse"], axis=2)]
    proto = model(nodes, X, {"y": FLOAT, "mean": FLOAT, "inverse": FLOAT}, {"s": normal(4, 5)})
    check(proto, {"x": normal(2, 3, 4, 5)})


def test_attention_of_the_standard_is_imported_by_its_definition() -> None:
    proto = model(
        [node("Attention", ["q", "k", "v"], ["y"], is_causal=1)],
        {name: (FLOAT, [1, 2, 6, 8]) for name in "qkv"},
        {"y": FLOAT},
        opset=23,
    )
    check(proto, {name: normal(1, 2, 6, 8, seed=i) for i, name in enumerate("qkv")})


def test_the_sign_of_infinity() -> None:
    nodes = [node("IsInf", ["x"], ["y"], detect_negative=0)]
    check(model(nodes, {"x": (FLOAT, [3])}, {"y": BOOL}), {"x": np.array([np.inf, -np.inf, 1], "float32")})


@pytest.mark.parametrize("external", [False, True])
def test_files_with_and_without_external_data(tmp_path: Path, external: bool) -> None:
    weights = {"w": normal(6, 3, 3, 3), **batch_norm_weights(6)}
    nodes = [node("Conv", ["x", "w"], ["t"]), node("BatchNormalization", ["t", "s", "b", "m", "v"], ["y"])]
    proto = model(nodes, {"x": (FLOAT, [1, 3, 8, 8])}, {"y": FLOAT}, weights)
    expected = run(load(proto), {"x": normal(1, 3, 8, 8)})
    path = tmp_path / "net.onnx"
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    onnx.save_model(copy, path, save_as_external_data=external, location="net.bin", size_threshold=0)
    assert (tmp_path / "net.bin").exists() is external
    np.testing.assert_array_equal(run(load(path), {"x": normal(1, 3, 8, 8)})[0], expected[0])
    np.testing.assert_array_equal(run(load(str(path)), {"x": normal(1, 3, 8, 8)})[0], expected[0])


def test_the_model_given_is_left_alone(tmp_path: Path) -> None:
    nodes = [node("Shape", ["x"], ["s"]), node("Reshape", ["x", "s"], ["t"]), node("Relu", ["t"], ["y"])]
    proto = model(nodes, X, {"y": FLOAT})
    before = proto.SerializeToString()
    load(proto)
    load(save(proto, tmp_path / "net.onnx"))
    assert proto.SerializeToString() == before
