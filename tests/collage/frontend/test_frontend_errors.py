"""Everything that can be wrong with a model or with the shapes given for it is one clear line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from frontend_cases import FLOAT, model, node, normal, save
from onnx import TensorProto, helper

from collage.errors import CollageError, FrontendError, UnboundDimensionError, UnsupportedOperatorError
from collage.frontend import load

RELU = model([node("Relu", ["x"], ["y"])], {"x": (FLOAT, ["batch", 3, None])}, {"y": FLOAT})
FIXED = model([node("Relu", ["x"], ["y"])], {"x": (FLOAT, [2, 3])}, {"y": FLOAT})


def message(error: type[CollageError], *arguments: Any) -> str:
    """What `load` says; one line."""
    with pytest.raises(CollageError) as caught:
        load(*arguments)
    assert type(caught.value) is error
    assert "\n" not in str(caught.value)
    return str(caught.value)


# -- files


def test_a_missing_file(tmp_path: Path) -> None:
    assert message(FrontendError, tmp_path / "none.onnx") == f"{tmp_path / 'none.onnx'}: no such file"


def test_a_directory(tmp_path: Path) -> None:
    assert "is a directory" in message(FrontendError, tmp_path)


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.onnx"
    path.touch()
    assert message(FrontendError, path) == f"{path} is empty"


@pytest.mark.parametrize("content", [b"this is no model\n" * 20, b"\x7fELF\x02\x01\x01" + bytes(100), b"{}", bytes(64)])
def test_a_file_of_another_kind(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.onnx"
    path.write_bytes(content)
    assert f"{path} is not an ONNX file" in message(FrontendError, path)


def test_a_truncated_file(tmp_path: Path) -> None:
    """Wherever it is cut off: either the message does not parse, or something in it is missing."""
    nodes = [node("MatMul", ["x", "w"], ["t"]), node("Relu", ["t"], ["y"])]
    whole = model(nodes, {"x": (FLOAT, [2, 8])}, {"y": FLOAT}, {"w": normal(8, 8)}).SerializeToString()
    path = tmp_path / "cut.onnx"
    for length in range(1, len(whole) - 8, 29):  # the last bytes hold the opset, whose absence is legal
        path.write_bytes(whole[:length])
        message(FrontendError, path)


def test_external_data_that_is_missing_or_short(tmp_path: Path) -> None:
    proto = model([node("Add", ["x", "w"], ["y"])], {"x": (FLOAT, [64])}, {"y": FLOAT}, {"w": normal(64)})
    path = tmp_path / "net.onnx"
    onnx.save_model(proto, path, save_as_external_data=True, location="net.bin", size_threshold=0)
    (tmp_path / "net.bin").write_bytes(bytes(100))
    assert "'w'" in message(FrontendError, path)
    (tmp_path / "net.bin").unlink()
    text = message(FrontendError, path)
    assert "external data of tensor 'w'" in text
    assert "net.bin" in text


def test_an_argument_that_is_no_model() -> None:
    assert "builtins.int" in message(FrontendError, 3)


def test_a_model_without_outputs() -> None:
    empty = onnx.ModelProto()
    empty.CopyFrom(FIXED)
    del empty.graph.output[:]
    assert "no outputs" in message(FrontendError, empty)


# -- shapes


def test_an_unbound_dimension_names_input_and_dimension_and_says_what_to_do() -> None:
    text = message(UnboundDimensionError, RELU)
    assert "dimension 0 ('batch') of input 'x'" in text
    assert "--shape x=N,3,N" in text


def test_a_dimension_without_a_name_is_counted() -> None:
    nameless = model([node("Relu", ["x"], ["y"])], {"x": (FLOAT, [1, None])}, {"y": FLOAT})
    assert "dimension 1 of input 'x'" in message(UnboundDimensionError, nameless)


def test_an_input_of_unknown_rank() -> None:
    loose = model([node("Relu", ["x"], ["y"])], {"x": (FLOAT, None)}, {"y": FLOAT})  # type: ignore[dict-item]
    assert "number of dimensions" in message(UnboundDimensionError, loose)
    assert load(loose, {"x": (2, 3)})["main"].params[0].ty.ndim == 2


def test_a_name_that_one_input_binds_is_bound_in_the_others() -> None:
    both = model([node("Add", ["x", "z"], ["y"])], {"x": (FLOAT, ["n", 3]), "z": (FLOAT, ["n", 1])}, {"y": FLOAT})
    assert [int(extent) for extent in load(both, {"x": (5, 3)})["main"].params[1].ty.shape] == [5, 1]


def test_shapes_that_do_not_fit() -> None:
    assert "'z', which is not an input" in message(FrontendError, RELU, {"z": (1,)})
    assert "its inputs: 'x'" in message(FrontendError, RELU, {"z": (1,)})
    assert "has 2 dimensions, the model declares 3" in message(FrontendError, RELU, {"x": (1, 3)})
    assert "dimension 1 is 3, not 4" in message(FrontendError, RELU, {"x": (1, 4, 5)})
    assert "extent below 0" in message(FrontendError, RELU, {"x": (-1, 3, 5)})


# -- operators


def test_all_unsupported_operators_are_listed_with_their_nodes() -> None:
    nodes = [
        node("Relu", ["x"], ["a"]),
        helper.make_node("Strange", ["a"], ["b"], name="n_b"),
        helper.make_node("Strange", ["a"], ["c"], name="n_c"),
        helper.make_node("Fancy", ["b", "c"], ["y"], domain="my.domain", name="my_node"),
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)]
    text = message(UnsupportedOperatorError, model(nodes, {"x": (FLOAT, [3, 3])}, {"y": FLOAT}, opset_imports=opsets))
    assert text == "unsupported ONNX operators: Strange (node 'n_b', 'n_c'); my.domain.Fancy (node 'my_node')"


def test_a_known_name_in_another_domain_is_unsupported() -> None:
    call = helper.make_node("Relu", ["x"], ["y"], domain="my.domain")
    text = message(UnsupportedOperatorError, model([call], {"x": (FLOAT, [3])}, {"y": FLOAT}))
    assert "my.domain.Relu (node 'y')" in text


def test_an_unsupported_operator_in_a_branch() -> None:
    results = [helper.make_tensor_value_info("r", FLOAT, None)]
    good = helper.make_graph([node("Neg", ["x"], ["r"])], "then", [], results)
    bad = helper.make_graph([node("Strange", ["x"], ["r"])], "else", [], results)
    branch = node("If", ["c"], ["y"], then_branch=good, else_branch=bad)
    proto = model([branch], {"x": (FLOAT, [3, 3])}, {"y": FLOAT}, {"c": np.array(True)})
    assert "Strange (node 'n_r')" in message(UnsupportedOperatorError, proto)


def test_training_is_refused() -> None:
    drop = node("Dropout", ["x", "r", "t"], ["y"])
    proto = model([drop], {"x": (FLOAT, [2])}, {"y": FLOAT}, {"r": np.array(0.5, "float32"), "t": np.array(True)})
    assert "training mode" in message(FrontendError, proto)


def test_a_value_that_nothing_produces() -> None:
    proto = model([node("Add", ["x", "ghost"], ["y"])], {"x": (FLOAT, [3])}, {"y": FLOAT})
    assert "Add (node 'n_y') reads 'ghost'" in message(FrontendError, proto)


def test_an_output_that_nothing_produces() -> None:
    proto = model([node("Relu", ["x"], ["t"])], {"x": (FLOAT, [3])}, {"y": FLOAT})
    assert "output 'y' reads 'y'" in message(FrontendError, proto)


def test_what_a_converter_raises_names_the_node() -> None:
    """Shapes that do not multiply: TVM's message, after the node's name."""
    proto = model([node("MatMul", ["x", "w"], ["y"])], {"x": (FLOAT, [2, 3])}, {"y": FLOAT}, {"w": normal(4, 5)})
    assert message(FrontendError, proto).startswith("MatMul (node 'n_y') cannot be imported: ")
    proto = model([node("Concat", ["w", "v"], ["y"], axis=0)], {}, {"y": FLOAT}, {"w": normal(2, 2), "v": normal(3)})
    assert message(FrontendError, proto).startswith("Concat (node 'n_y') cannot be imported: ")


def test_an_index_out_of_bounds() -> None:
    proto = model([node("Gather", ["x", "i"], ["y"])], {"x": (FLOAT, [3])}, {"y": FLOAT}, {"i": np.array([3])})
    assert "outside [-3, 2]" in message(FrontendError, proto)


def test_inputs_that_are_no_numeric_tensors() -> None:
    text = model([node("Identity", ["x"], ["y"])], {"x": (TensorProto.STRING, [3])}, {"y": TensorProto.STRING})
    assert "'x' is a tensor of strings" in message(FrontendError, text)
    sequence = onnx.ModelProto()
    sequence.CopyFrom(FIXED)
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, [2]))
    sequence.graph.input[0].type.CopyFrom(kind)
    assert "'x' is not a tensor" in message(FrontendError, sequence)


def test_errors_print_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The command line shows the one line; TVM's importer would print the inputs of the node first."""
    proto = model([node("MatMul", ["x", "w"], ["y"])], {"x": (FLOAT, [2, 3])}, {"y": FLOAT}, {"w": normal(4, 5)})
    message(FrontendError, save(proto, tmp_path / "net.onnx"))
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""
