"""Shapes that are given win over what an ONNX file declares: exporters call alike what is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from frontend_cases import FLOAT, model, node, normal, run
from tvm.script import ir as I
from tvm.script import relax as R

from collage.errors import FrontendError, UnboundDimensionError
from collage.frontend import batch_shapes, input_specs, load
from collage.frontend.source import dynamic_onnx, notes_of


@pytest.mark.parametrize("symbol", ["?", "-1", "DynamicDimension", "n"])
def test_one_name_for_several_extents_is_a_warning(symbol: str) -> None:
    proto = model(
        [node("MatMul", ["x", "z"], ["y"])], {"x": (FLOAT, [symbol, symbol]), "z": (FLOAT, [symbol, 4])}, {"y": FLOAT}
    )
    x, z = normal(5, 3), normal(3, 4)
    with pytest.warns(UserWarning, match=f"dimensions of 'x' and 'z' '.{{0,1}}{symbol[1:]}'.*given win: 5, 3"):
        module = load(proto, {"x": x.shape, "z": z.shape})
    assert [spec.shape for spec in input_specs(module)] == [(5, 3), (3, 4)]
    np.testing.assert_allclose(run(module, {"x": x, "z": z})[0], x @ z, rtol=1e-5, atol=1e-5)


def test_the_note_stays_with_the_module() -> None:
    proto = model([node("Relu", ["x"], ["y"])], {"x": (FLOAT, ["?", 3, "?"])}, {"y": FLOAT})
    with pytest.warns(UserWarning, match="'\\?'"):
        module = load(proto, {"x": (1, 3, 7)})
    assert len(notes_of(load(module))) == 1
    assert notes_of(load(proto, {"x": (7, 3, 7)})) == ()


def test_a_name_with_several_extents_binds_no_other_input() -> None:
    inputs = {"x": (FLOAT, ["?", "?"]), "z": (FLOAT, ["?", 1])}
    proto = model([node("Add", ["x", "z"], ["y"])], inputs, {"y": FLOAT})
    with pytest.raises(UnboundDimensionError, match="dimension 0 \\('\\?'\\) of input 'z'"):
        load(proto, {"x": (5, 3)})
    assert input_specs(load(proto, {"x": (5, 5)}))[1].shape == (5, 1)


def test_a_batch_is_every_dynamic_first_dimension() -> None:
    inputs = {"x": (FLOAT, ["?", 3, "?", "?"]), "z": (FLOAT, ["n", 1]), "fixed": (FLOAT, [2, 5])}
    proto = model([node("Relu", ["x"], ["y"])], inputs, {"y": FLOAT})
    first, second = batch_shapes(proto, [1, 8], {"x": (1, 3, 32, 32)})
    assert first == {"x": (1, 3, 32, 32), "z": (1, 1), "fixed": (2, 5)}
    assert second == {"x": (8, 3, 32, 32), "z": (8, 1), "fixed": (2, 5)}
    with pytest.raises(UnboundDimensionError, match="--shape x=8,3,N,N"):
        batch_shapes(proto, [8])


def test_a_batch_that_has_a_name_is_the_batch_everywhere() -> None:
    inputs = {"x": (FLOAT, ["batch", "length"]), "state": (FLOAT, [2, "batch", 4])}
    proto = model([node("Relu", ["x"], ["y"])], inputs, {"y": FLOAT})
    expected = {"x": (8, 5), "state": (2, 8, 4)}
    assert batch_shapes(proto, [8], {"x": (1, 5)}) == [expected]
    assert batch_shapes(proto, [8], {"x": (1, 5), "state": (2, 1, 4)}) == [expected]


def test_a_model_without_a_dynamic_first_dimension_has_one_batch() -> None:
    proto = model([node("Relu", ["x"], ["y"])], {"x": (FLOAT, [1, "n"])}, {"y": FLOAT})
    with pytest.raises(FrontendError, match="no input has a dynamic first dimension"):
        batch_shapes(proto, [8], {"x": (1, 5)})


@I.ir_module
class Symbolic:
    @R.function
    def main(x: R.Tensor(("n", "k"), "float32"), z: R.Tensor(("n * 2", "k"), "float32")) -> R.Tensor(
        ("n * 2", "k"), "float32"
    ):
        with R.dataflow():
            y = R.add(R.concat((x, x), axis=0), z)
            R.output(y)
        return y


def test_the_batch_of_a_relax_module_is_a_symbol() -> None:
    assert batch_shapes(Symbolic, [1, 4], {"x": (9, 3)}) == [
        {"x": (1, 3), "z": (2, 3)},
        {"x": (4, 3), "z": (8, 3)},
    ]
    with pytest.raises(UnboundDimensionError, match="dimension 1 \\('k'\\) of input 'x'"):
        batch_shapes(Symbolic, [4])
    fixed = load(Symbolic, {"x": (1, 3)})
    with pytest.raises(FrontendError, match="no input has a dynamic first dimension"):
        batch_shapes(fixed, [4])


def test_the_dynamic_model_is_whole(tmp_path: Path) -> None:
    proto = model([node("MatMul", ["x", "w"], ["y"])], {"x": (FLOAT, ["n", 64])}, {"y": FLOAT}, {"w": normal(64, 32)})
    onnx.save_model(
        proto,
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="m.bin",
        size_threshold=0,
        convert_attribute=False,
    )
    found = dynamic_onnx(tmp_path / "m.onnx")
    assert found is not None and found[1] == [("x", "float32", [None, 64])]
    np.testing.assert_array_equal(
        onnx.numpy_helper.to_array(onnx.load_from_string(found[0]).graph.initializer[0]), normal(64, 32)
    )


def test_what_has_no_dynamic_model(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = model([node("Relu", ["x"], ["y"])], {"x": (FLOAT, ["n", 64])}, {"y": FLOAT})
    fixed = model([node("Relu", ["x"], ["y"])], {"x": (FLOAT, [1, 64])}, {"y": FLOAT})
    assert dynamic_onnx(proto) is not None and dynamic_onnx(fixed) is None and dynamic_onnx(Symbolic) is None
    monkeypatch.setattr("collage.frontend.source._LARGEST", 10)
    assert dynamic_onnx(proto) is None
