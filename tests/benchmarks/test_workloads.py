"""The workloads are the published networks: valid ONNX, of their published size, with telling outputs."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

from benchmarks.workloads import NAMES, SMALL, build, builders, random_inputs
from benchmarks.workloads.__main__ import main

#: Learnt parameters: torchvision's counts, Keras's for NASNet, Hugging Face's for the transformers, PyTorch's example's
#: for DCGAN; for the other two, as the layer sizes of the papers give them.
PARAMETERS = {
    "resnet50": 25_557_032,
    "resnext50_32x4d": 25_028_904,
    "mobilenet_v2": 3_504_872,
    "nasnet_a_mobile": 5_289_978,
    "bert_base": 109_482_240,
    "minilm": 22_713_216,
    "dcgan": 3_576_704,
    "resnet50_3d": 47_018_576,
    "nasrnn": 5 * 16 * 512 * 512,
    "gpt2": 124_439_808,
    "resnet18": 11_689_512,
    "vit_b_16": 86_567_656,
    "squeezenet1_1": 1_235_496,
    "shufflenet_v2_x1_0": 2_278_604,
    "efficientnet_b0": 5_288_548,
    "densenet121": 7_978_856,
    "mobilenet_v2_035": 1_677_128,
    "bert_tiny": 4_385_920,
    "unet": 31_037_633 - 961,  # of the usual PyTorch one, which has biases in transposed and in the last convolutions
}
CONVOLUTIONS = {
    "resnet50": 53,
    "resnext50_32x4d": 53,
    "mobilenet_v2": 52,
    "nasnet_a_mobile": 356,
    "resnet50_3d": 53,
    "resnet18": 20,
    "vit_b_16": 1,
    "unet": 19,
    "squeezenet1_1": 26,
    "shufflenet_v2_x1_0": 56,
    "efficientnet_b0": 81,
    "densenet121": 120,
    "mobilenet_v2_035": 52,
}
#: Without a publication.
TINY = (*SMALL, "tiny_inception")


def run(model: ModelProto, inputs: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """The outputs of ONNX Runtime."""
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


def operators(model: ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def learnt_parameters(model: ModelProto) -> int:
    """How many weights there are, without the running statistics of batch normalisations and the constants."""
    norms = [node for node in model.graph.node if node.op_type == "BatchNormalization"]
    fixed = {name for node in norms for name in node.input[3:]}
    weights = [
        tensor for tensor in model.graph.initializer if tensor.name.startswith("weight") and tensor.name not in fixed
    ]
    return sum(math.prod(tensor.dims) for tensor in weights)


def digest(name: str, **options: Any) -> str:
    return hashlib.sha256(build(name, **options).SerializeToString(deterministic=True)).hexdigest()


def check_runs(model: ModelProto) -> None:
    """Valid, with its initializers all in use; two inputs give finite outputs that vary, and vary with the input."""
    onnx.checker.check_model(model, full_check=True)
    used = {name for node in model.graph.node for name in node.input}
    assert {tensor.name for tensor in model.graph.initializer} <= used
    assert {value.name for value in model.graph.input} <= used

    first, second = random_inputs(model, seed=1), random_inputs(model, seed=2)
    shapes = [tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim) for value in model.graph.output]
    for shape, one, other in zip(shapes, run(model, first), run(model, second), strict=True):
        assert one.shape == shape
        assert np.isfinite(one).all()
        assert 0.02 < one.std() < 20.0
        assert np.unique(one).size > 0.5 * one.size
        assert np.abs(one - other).mean() > 0.005 * one.std()  # least in deep networks without shortcuts


LIGHT = ("mobilenet_v2", "nasnet_a_mobile", "dcgan", "nasrnn", "squeezenet1_1", "shufflenet_v2_x1_0")
#: They take ten seconds to build and to run.
LARGEST = ("bert_base", "gpt2")
#: The others have up to half a gigabyte of weights, and take seconds to build.
WITH_LARGE_ONES_SLOW = [
    *TINY,
    *LIGHT,
    *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES if name not in LIGHT),
]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in LARGEST else ()) for name in PARAMETERS]
)
def test_network_is_the_published_one_and_runs(name: str) -> None:
    model = build(name)
    assert learnt_parameters(model) == PARAMETERS[name]
    assert operators(model)["Conv"] == CONVOLUTIONS.get(name, 0)
    check_runs(model)


@pytest.mark.parametrize("name", TINY)
def test_small_relative_runs(name: str) -> None:
    model = build(name)
    assert model.ByteSize() < 1e6
    check_runs(model)


@pytest.mark.parametrize("name", [*TINY, *LIGHT])
def test_a_wrong_weight_shows_in_the_output(name: str) -> None:
    """Exchanging the rows of one weight, as a kernel with a wrong layout would, is far outside a tolerance of 1e-4."""
    model = build(name)
    inputs = random_inputs(model, seed=6)
    right = run(model, inputs)
    matrices = [tensor for tensor in model.graph.initializer if len(tensor.dims) > 1 and tensor.dims[0] > 2]
    for tensor in (matrices[0], matrices[len(matrices) // 2], matrices[-1]):
        kept = tensor.raw_data
        tensor.raw_data = np.roll(numpy_helper.to_array(tensor), 1, axis=0).tobytes()
        wrong = run(model, inputs)
        tensor.raw_data = kept
        assert any(np.abs(a - b).max() > 0.01 * np.abs(b).max() for a, b in zip(wrong, right, strict=True)), tensor.name


def test_small_relatives_use_the_operators_of_their_networks() -> None:
    for small, full in {"tiny_resnet": "resnet50", "tiny_mobilenet": "mobilenet_v2", "tiny_bert": "minilm"}.items():
        assert set(operators(build(small))) == set(operators(build(full)))


@pytest.mark.parametrize("name", WITH_LARGE_ONES_SLOW)
def test_one_seed_gives_the_same_bytes(name: str) -> None:
    assert digest(name) == digest(name)


def test_seeds_differ() -> None:
    assert digest("tiny_resnet", seed=0) != digest("tiny_resnet", seed=1)


@pytest.mark.parametrize("name", TINY)
def test_each_element_of_a_batch_is_computed_alone(name: str) -> None:
    inputs = random_inputs(build(name, batch=3), seed=4)
    batched = run(build(name, batch=3), inputs)
    for index in range(3):
        alone = run(build(name), {key: array[index : index + 1] for key, array in inputs.items()})
        for whole, part in zip(batched, alone, strict=True):
            np.testing.assert_allclose(whole[index : index + 1], part, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", WITH_LARGE_ONES_SLOW)
def test_half_precision_has_the_same_weights_rounded(name: str) -> None:
    if name in ("gpt2", "bert_base", "resnet50_3d"):  # as large as they are alike: minilm and resnet50 stand for them
        return
    full, half = build(name), build(name, dtype="float16")
    assert [node.op_type for node in half.graph.node] == [node.op_type for node in full.graph.node]
    kinds = {value.type.tensor_type.elem_type for value in (*half.graph.input, *half.graph.output)}
    assert TensorProto.FLOAT not in kinds and TensorProto.FLOAT not in {t.data_type for t in half.graph.initializer}
    for one, other in zip(full.graph.initializer, half.graph.initializer, strict=False):
        if one.data_type == TensorProto.FLOAT and one.name.startswith("weight"):
            expected = numpy_helper.to_array(one).astype(np.float16)
            np.testing.assert_array_equal(numpy_helper.to_array(other), expected)


@pytest.mark.parametrize("name", TINY)
def test_half_precision_runs(name: str) -> None:
    check_runs(build(name, dtype="float16"))


def test_bfloat16_has_the_same_weights_rounded_and_its_lowest_number_in_masks() -> None:
    full, rounded = build("tiny_bert"), build("tiny_bert", dtype="bfloat16")
    lowest = set()
    for one, other in zip(full.graph.initializer, rounded.graph.initializer, strict=False):
        if one.data_type == TensorProto.FLOAT:
            values = numpy_helper.to_array(other)
            lowest.add(float(values.min()))
            assert values.dtype == ml_dtypes.bfloat16
            if one.name.startswith("weight"):
                np.testing.assert_array_equal(values, numpy_helper.to_array(one).astype(ml_dtypes.bfloat16))
    assert -3.3895313892515355e38 in lowest
    assert random_inputs(build("tiny_resnet", dtype="bfloat16"))["input"].dtype == ml_dtypes.bfloat16


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(ValueError, match="float32 or float16 or bfloat16, not 'int8'"):
        build("tiny_resnet", dtype="int8")


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'resnet51'.*resnet50.*tiny_bert"):
        build("resnet51")


@pytest.mark.slow
def test_a_step_of_decoding_gives_what_the_whole_prompt_gives() -> None:
    """With the keys and values of the first tokens, the logits of the last one."""
    prefill, step, length = build("gpt2", sequence=4), build("gpt2_step", sequence=4), 4
    kept = [n for n in prefill.graph.node if n.op_type == "Transpose" and n.output[0] != prefill.graph.output[0].name]
    kept = [n for n in kept if len(next(a for a in n.attribute if a.name == "perm").ints) == 4]
    # Of every layer: query, key, value, context.
    keys, values = kept[1::4], kept[2::4]
    prefill.graph.output.extend(helper.make_empty_tensor_value_info(n.output[0]) for n in (*keys, *values))
    tokens = random_inputs(prefill, seed=7)["input_ids"]
    logits, *caches = run(prefill, {"input_ids": tokens})
    inputs = {"input_ids": tokens[:, -1:]}
    for layer in range(12):
        inputs[f"past_{layer}_key"] = caches[layer].transpose(0, 1, 3, 2)[:, :, : length - 1]
        inputs[f"past_{layer}_value"] = caches[12 + layer][:, :, : length - 1]
    last, *present = run(step, {name: np.ascontiguousarray(array) for name, array in inputs.items()})
    np.testing.assert_allclose(last[:, 0], logits[:, -1], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(present[1], caches[12], rtol=1e-3, atol=1e-4)


def test_random_inputs_are_legal_and_seeded() -> None:
    model = build("tiny_bert", batch=4)
    inputs = random_inputs(model, seed=3)
    assert list(inputs) == ["input_ids", "attention_mask", "token_type_ids"]
    assert all(array.dtype == np.int64 and array.shape == (4, 16) for array in inputs.values())
    assert inputs["input_ids"].min() >= 0 and 50 < inputs["input_ids"].max() < 100
    assert set(inputs["token_type_ids"].flat) == {0, 1}
    mask = inputs["attention_mask"]
    assert set(mask.flat) == {0, 1}
    assert (mask.mean(axis=1) >= 0.75).all() and (mask[:, -1] == 0).all()
    assert (np.diff(mask, axis=1) <= 0).all()

    again, other = random_inputs(model, seed=3), random_inputs(model, seed=4)
    assert all(np.array_equal(inputs[key], again[key]) for key in inputs)
    assert not np.array_equal(inputs["input_ids"], other["input_ids"])


@pytest.mark.parametrize(
    ("dtype", "shape", "message"),
    [(TensorProto.FLOAT, ["n", 3], "x has a dynamic dimension"), (TensorProto.STRING, [1], "x is STRING")],
)
def test_random_inputs_names_the_input_it_cannot_make(dtype: int, shape: list[int | str], message: str) -> None:
    value = helper.make_tensor_value_info("x", dtype, shape)
    model = helper.make_model(helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [value], []))
    with pytest.raises(ValueError, match=message):
        random_inputs(model)


def test_padding_does_not_reach_the_other_tokens() -> None:
    model = build("tiny_bert")
    inputs = random_inputs(model, seed=5)
    kept = inputs["attention_mask"][0].astype(bool)
    changed = {**inputs, "input_ids": np.where(kept, inputs["input_ids"], (inputs["input_ids"] + 1) % 100)}
    before, after = run(model, inputs)[0], run(model, changed)[0]
    np.testing.assert_allclose(before[0, kept], after[0, kept], rtol=1e-5, atol=1e-6)
    assert np.abs(before[0, ~kept] - after[0, ~kept]).max() > 0.1


def test_command_line_writes_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    main(["tiny_resnet", "-o", str(path), "--batch", "2", "--seed", "7"])
    assert onnx.load(path) == build("tiny_resnet", batch=2, seed=7)
    main(["--list"])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == list(builders())


@pytest.mark.parametrize("arguments", [[], ["resnet51"], ["tiny_resnet", "-o", "no/such/folder/model.onnx"]])
def test_command_line_refuses_with_status_2(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "error:" in capsys.readouterr().err
