"""Precision under error budgets: errors, samples, rivals, who is raced, and the tables of what was judged."""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.precision import rivals as making
from benchmarks.precision import suite, table
from benchmarks.precision.error import error_of, relative_l2, variation
from benchmarks.precision.judged import Judged, finalists, judge_errors, run
from benchmarks.precision.quantise import Validation
from benchmarks.precision.rivals import Nncf, is_transformer, made, rivals
from benchmarks.precision.samples import CALIBRATION, UNSEEN, photo, read, samples_of, save, tokens
from benchmarks.referee.process import Entry
from benchmarks.referee.race import Repetition, Terms
from benchmarks.workloads import HELD_OUT, build


def network() -> onnx.ModelProto:
    """Two products of matrices with a ReLU between them."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal((16, 16)).astype(np.float32), name) for name in ("first", "second")
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "second"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    ends = [value("x", TensorProto.FLOAT, (4, 16))], [value("y", TensorProto.FLOAT, (4, 16))]
    graph = helper.make_graph(nodes, "two", *ends, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def samples(count: int, seed: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [{"x": rng.standard_normal((4, 16), dtype=np.float32)} for _ in range(count)]


def judged(mean: float, seconds: float) -> Judged:
    return Judged(error_of([[np.array([1.0 + mean])]], [[np.array([1.0])]]), seconds)


def test_the_error_is_the_mean_over_samples_of_the_largest_of_the_outputs() -> None:
    right = [[np.array([3.0, 4.0]), np.array([1.0])]] * 2
    found = [[np.array([3.0, 4.5]), np.array([1.0])], [np.array([3.5, 4.0]), np.array([1.3])]]
    error = error_of(found, right)
    assert error.samples == pytest.approx((0.1, 0.3))
    assert error.mean == pytest.approx(0.2)
    assert error.worst == pytest.approx(0.3)


@pytest.mark.parametrize("wrong", [np.array([np.nan, 1.0]), np.array([np.inf, 1.0]), np.array([1.0])])
def test_outputs_that_are_no_numbers_or_of_another_shape_keep_no_budget(wrong: np.ndarray) -> None:
    assert relative_l2([wrong], [np.array([1.0, 1.0])]) == [np.inf]


def test_an_output_of_zeros_has_no_error_or_an_infinite_one() -> None:
    assert relative_l2([np.zeros(2)], [np.zeros(2)]) == [0.0]
    assert relative_l2([np.ones(2)], [np.zeros(2)]) == [np.inf]


def test_variation_is_how_far_samples_are_apart() -> None:
    assert variation([[np.array([1.0])], [np.array([1.5])]]) == pytest.approx(0.5)
    assert variation([[np.array([1.0])]]) == 0.0


@pytest.mark.parametrize("name", ["tiny_resnet", "tiny_bert", "dcgan"])
def test_samples_fit_the_network_depend_on_their_seed_and_are_no_others(name: str) -> None:
    model = build(name)
    found, other = samples_of(model, 2, CALIBRATION), samples_of(model, 2, UNSEEN)
    assert list(found[0]) == [value.name for value in model.graph.input]
    for value in model.graph.input:
        shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        assert found[0][value.name].shape == shape and found[0][value.name].dtype == dtype
    first = next(iter(found[0]))
    assert not np.array_equal(found[0][first], found[1][first])
    assert not np.array_equal(found[0][first], other[0][first])
    assert np.array_equal(samples_of(model, 1, CALIBRATION)[0][first], found[0][first])


def test_tokens_are_masked_beyond_the_end_of_a_sentence() -> None:
    sample = samples_of(build("tiny_bert"), 1, UNSEEN)[0]
    assert not sample["input_ids"][sample["attention_mask"] == 0].any()
    assert set(np.unique(sample["token_type_ids"])) <= {0, 1}


def test_photographs_are_smooth_and_tokens_follow_zipfs_law() -> None:
    image = photo(64, 64, np.random.default_rng(0))
    assert image.min() >= 0.0 and image.max() <= 1.0
    neighbours = np.corrcoef(image[:, :-1].ravel(), image[:, 1:].ravel())[0, 1]
    assert neighbours > 0.8
    counts = np.sort(np.bincount(tokens((20000,), 1000, np.random.default_rng(0)), minlength=1000))[::-1]
    assert counts[0] / counts[9] == pytest.approx((9 + 3.7) / 3.7, rel=0.3)


def test_samples_are_written_as_collage_reads_them(tmp_path: Path) -> None:
    several = samples(3, 0)
    save(several, tmp_path / "samples.npz")
    save(several, tmp_path / "again.npz")
    assert (tmp_path / "samples.npz").read_bytes() == (tmp_path / "again.npz").read_bytes()
    with np.load(tmp_path / "samples.npz") as data:
        assert data["x"].shape == (3, 4, 16)
    assert np.array_equal(read(tmp_path / "samples.npz")[2]["x"], several[2]["x"])


def test_transformers_are_recognised_by_their_attention() -> None:
    assert is_transformer(build("tiny_bert"))
    assert not is_transformer(build("tiny_resnet"))
    assert not is_transformer(network())


def test_what_was_made_is_not_made_again_and_failures_are_told(tmp_path: Path) -> None:
    calls = []

    def fails(path: Path) -> dict[str, Any]:
        calls.append(path)
        raise making.PreparationError("no")

    assert made(tmp_path / "a.xml", fails).facts == {"error": "no"}
    assert made(tmp_path / "a.xml", fails).facts == {"error": "no"}
    assert len(calls) == 1


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Entry], Mapping[str, Any], Path]:
    """Rivals of the small network, without NNCF."""
    folder = tmp_path_factory.mktemp("rivals")
    model = folder / "two.onnx"
    onnx.save(network(), model)
    save(samples(4, 1), folder / "calibration.npz")
    entries, facts = rivals(model, folder / "calibration.npz", folder / "made", [0.01], None)
    return entries, facts, model


def test_rivals_of_less_precision_have_errors_of_their_kind(
    prepared: tuple[list[Entry], Mapping[str, Any], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.precision.judged._QUALIFYING_S", 0.01)
    entries, facts, model = prepared
    assert facts["onnxruntime-int8"]["seconds"] >= 0
    again = rivals(model, model.with_name("calibration.npz"), model.with_name("made"), [0.01], None)
    assert again == (entries, facts)
    unseen = samples(3, 2)
    expected, _ = run(Entry("plain", "onnxruntime-plain", model), unseen, 1)
    assert not np.array_equal(expected[0][0], expected[1][0])  # each sample was given
    chosen = [entry for entry in entries if entry.name in ("onnxruntime", "openvino-bf16", "onnxruntime-int8")]
    found = judge_errors([*chosen, Entry("lost", "openvino", model.with_name("no.onnx"))], unseen, expected, 1)
    assert found["onnxruntime"].keeps(1e-5)
    assert 1e-4 < found["onnxruntime-int8"].error.mean < 0.1  # type: ignore[union-attr]
    assert found["openvino-bf16"].keeps(0.02)  # float32 where the processor has no bfloat16
    assert found["onnxruntime"].seconds > 0
    assert not found["lost"].keeps(1.0) and found["lost"].reason


def test_only_the_fastest_that_keep_the_budget_are_raced() -> None:
    several = {
        "slow": judged(0.0, 3.0),
        "near": judged(0.005, 1.1),
        "fast": judged(0.004, 1.0),
        "off": judged(0.1, 0.5),
    }
    several["lost"] = Judged(None, reason="no")
    assert finalists(several, lambda found: found.keeps(0.01)) == ["fast", "near"]
    assert finalists(several, lambda found: found.keeps(1e-9)) == ["slow"]
    assert finalists({}, lambda found: True) == []


class _Model:
    """What NNCF hands to a validation, with an error of `factor`."""

    def __init__(self, factor: float) -> None:
        self.factor, self.outputs = factor, [None]

    def create_infer_request(self) -> _Model:
        return self

    def infer(self, sample: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return [sample["x"] * self.factor]


def test_accuracy_control_validates_by_the_same_error_and_is_counted() -> None:
    validation = Validation(samples(3, 0))
    assert validation(_Model(1.0), range(3)) == (1.0, [1.0] * 3)
    value, each = validation(_Model(1.1), [0, 2])
    assert value == pytest.approx(0.9) and each == pytest.approx([0.9, 0.9])
    assert (validation.calls, validation.inferences, validation.value) == (2, 5, 1.0)


def test_the_script_says_what_it_lacks(tmp_path: Path) -> None:
    """Without NNCF it ends with an error, which becomes the reason why there is no such rival."""
    (tmp_path / "nncf.py").write_text("raise ImportError('no NNCF here')\n")
    onnx.save(network(), tmp_path / "two.onnx")
    save(samples(2, 1), tmp_path / "calibration.npz")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    assert not making.has_nncf(Nncf(str(python)))
    with pytest.raises(making.PreparationError, match="no NNCF here"):
        making.by_nncf(tmp_path / "two.onnx", tmp_path / "calibration.npz", tmp_path / "o.xml", Nncf(str(python)))


@pytest.mark.nncf
def test_nncf_quantises_and_keeps_a_budget(tmp_path: Path) -> None:
    nncf = Nncf(os.environ.get("NNCF_PYTHON", sys.executable), 300.0)
    assert making.has_nncf(nncf), "pip install '.[bench]', or NNCF_PYTHON=interpreter that has it"
    model = tmp_path / "two.onnx"
    onnx.save(network(), model)
    save(samples(4, 1), tmp_path / "calibration.npz")
    entries, facts = rivals(
        model, tmp_path / "calibration.npz", tmp_path / "made", [1e-4, 5.0], nncf
    )  # everybody keeps the second
    assert "validations" not in facts["openvino-int8"]
    assert facts["nncf-0.0001"]["validations"] > facts["nncf-5"]["validations"] >= 2
    assert facts["nncf-0.0001"]["quantisers"] < facts["nncf-5"]["quantisers"]
    names = [entry.name for entry in entries]
    assert "nncf-0.0001-bf16" in names and "nncf-5" not in names  # that one is openvino-int8


def repetition(**seconds: float) -> Repetition:
    noise = [1.0, 1.01, 0.99] * 4
    return Repetition(0, "", {name.replace("_", "-"): [s * x for x in noise] for name, s in seconds.items()})


def test_ratios_are_over_the_fastest_that_keeps_the_budget_and_over_float32() -> None:
    found = suite.compared(
        [repetition(openvino=3.0, onnxruntime=2.0, openvino_bf16=1.5, collage=1.0)], ["openvino-bf16"]
    )
    assert found["rival"]["name"] == "openvino-bf16" and found["rival"]["ratio"] == pytest.approx(1.5)
    assert found["float32"]["name"] == "onnxruntime" and found["float32"]["ratio"] == pytest.approx(2.0)
    assert found["rival"]["low"] <= 1.5 <= found["rival"]["high"]
    assert set(suite.compared([repetition(openvino=3.0)], ["openvino"])) == {"medians"}


def cell(budget: float, error: float, ratio: float, name: str = "openvino-bf16") -> dict[str, Any]:
    return {
        "budget": budget,
        "commit": "abc",
        "tune": {"seconds": 60.0},
        "plan": {"accuracy": {"gap": 0.01, "judged": 4}},
        "ours": judged(error, 1.0).as_dict(),
        "rival": {"name": name, "ratio": ratio, "low": ratio, "high": ratio},
        "float32": {"name": "openvino", "ratio": 2 * ratio, "low": ratio, "high": ratio},
    }


def result(name: str, **cells: Any) -> dict[str, Any]:
    return {
        "network": name,
        "held out": name in HELD_OUT,
        "samples": 16,
        "commit": "abc",
        "machine": {"model": "CPU", "cores": 2},
        "versions": {"openvino": "1"},
        "made": {"nncf-0.01": {"nncf": "3", "seconds": 9.0, "validations": 31}},
        "rivals": {"openvino-bf16": judged(0.004, 1.0).as_dict()},
        "cells": {key.replace("_", "."): value for key, value in cells.items()},
    }


def test_the_tables_count_what_is_lost_and_what_broke_its_budget() -> None:
    text = table.markdown(
        [
            result("resnet50", **{"0_01": cell(0.01, 0.009, 1.21), "0_05": cell(0.05, 0.04, 0.9)}),
            result("bert_base", **{"0_01": cell(0.01, 0.02, 5.0)}),
            result("densenet121", **{"0_01": cell(0.01, 0.009, 1.0)}),
        ]
    )
    assert "| 1% | 1.210 | 2.420 | 0 of 2 | 1 of 2 |" in text
    assert "| 5% | 0.900 | 1.800 | 1 of 1 | 0 of 1 |" in text
    assert "| all | 1.044 | 2.087 | 1 of 3 | 1 of 3 |" in text
    assert "| resnet50 | 1.21 (1.21 to 1.21) openvino-bf16, 0.9% | 0.90 (0.90 to 0.90) openvino-bf16, 4% |" in text
    assert "| bert_base | error 2% |  |" in text
    assert "| resnet50 | 1% | 31 in 9 s | 4 in 60 s | 1% |" in text
    assert text.index("bert_base") < text.index("Networks that nothing was tuned to") < text.index("| densenet121")
    assert "NNCF 3" in text and "16 samples calibrate" in text


def test_the_suite_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[float] = []

    def judge(network: str, budget: float, prepared: Any, settings: Any) -> dict[str, Any]:
        done.append(budget)
        if budget == 0.05:
            raise suite.TuningError("no")
        return cell(budget, 0.0, 1.0)

    monkeypatch.setattr(suite, "prepare", lambda network, settings: None)
    monkeypatch.setattr(suite, "result_of", lambda *given: result("resnet50") | {"cells": {}})
    monkeypatch.setattr(suite, "judge_budget", judge)
    settings = suite.Settings(tmp_path, tmp_path, Terms(), budgets=(0.01, 0.05))
    assert suite.judge_network("resnet50", settings)[1] == ["resnet50, 0.05: no"]
    assert list(json.loads((tmp_path / "resnet50.json").read_text())["cells"]) == ["0.01"]
    suite.judge_network("resnet50", settings)
    assert done == [0.01, 0.05, 0.05]
    assert table.read(tmp_path)[0]["network"] == "resnet50"
    (tmp_path / "other.json.gz").write_bytes(gzip.compress(json.dumps(result("minilm")).encode()))
    assert [found["network"] for found in table.read(tmp_path)] == ["minilm", "resnet50"]


def test_what_shipped_is_raced_again_and_keeps_its_tune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raced: list[Path] = []

    def judge(library: Path, budget: float, prepared: Any, settings: Any) -> dict[str, Any]:
        raced.append(library)
        return {"ours": {"error": {"mean": 0.0}}, "rival": {"name": "nncf-0.01", "ratio": 1.5}}

    monkeypatch.setattr(suite, "prepare", lambda network, settings: None)
    monkeypatch.setattr(suite, "result_of", lambda *given: result("resnet50") | {"cells": {}})
    monkeypatch.setattr(suite, "judge_library", judge)
    before = result("resnet50", **{"0_01": cell(0.01, 0.009, 1.2)})
    (tmp_path / "resnet50.json").write_text(json.dumps(before))
    settings = suite.Settings(tmp_path, tmp_path, Terms(), budgets=(0.01, 0.05))
    suite.judge_network("resnet50", settings, again=True)
    after = json.loads((tmp_path / "resnet50.json").read_text())["cells"]
    assert raced == [tmp_path / "resnet50" / "resnet50-0.01.so"] and list(after) == ["0.01"]
    assert after["0.01"]["rival"]["ratio"] == 1.5 and after["0.01"]["tune"] == before["cells"]["0.01"]["tune"]


def test_without_nncf_the_suite_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        suite.main(["resnet50", "--nncf-python", "/bin/false"])
    assert "--without-nncf" in capsys.readouterr().err


def test_an_empty_folder_has_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        table.main(["--folder", str(tmp_path)])
    assert "has no results" in capsys.readouterr().err
