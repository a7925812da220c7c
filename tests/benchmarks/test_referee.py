"""The referee: its intervals hold; it tells a slower model, a wrong one, one that does not run, and who is no rival."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, save

from benchmarks.referee.__main__ import installed, main
from benchmarks.referee.intervals import ratio_interval
from benchmarks.referee.origin import origin
from benchmarks.referee.process import Contestant, ContestantError, Entry
from benchmarks.referee.race import Repetition, Terms, errors, race, thinned
from benchmarks.referee.verdict import Verdict, judge

FAST, SLOW = [1.0, 1.01, 0.99] * 10, [1.2, 1.21, 1.19] * 10


def repetition(errors: Mapping[str, float] | None = None, **latencies: Sequence[float]) -> Repetition:
    """One of these medians of rounds; "collage_a" is "collage a"."""
    medians = {name.replace("_", " "): list(found) for name, found in latencies.items()}
    wrong = {name: (errors or {}).get(name, 0.0) for name in medians}
    samples = {name: [[x] for x in found] for name, found in medians.items()}
    return Repetition(0, "", medians, samples, wrong)


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_intervals_of_equals_hold_one_most_of_the_time(correlation: float) -> None:
    """Also where neighbouring rounds resemble each other."""
    rng = np.random.default_rng(0)
    missed, trials = 0, 200
    for trial in range(trials):
        noise = np.zeros((2, 61))
        for i in range(1, 61):
            noise[:, i] = correlation * noise[:, i - 1] + rng.normal(0, 0.05, 2)
        a, b = np.exp(noise)
        found = ratio_interval([a], [b], seed=trial, resamples=400)
        missed += not found.low <= 1.0 <= found.high
    assert missed / trials < 0.13


def test_intervals_over_repetitions_hold_what_processes_differ_by() -> None:
    """Rounds of one process resemble each other more than those of the next process."""
    rng = np.random.default_rng(0)
    pooled, missed, trials = 0, 0, 100
    for _ in range(trials):
        levels = 1.0 + rng.normal(0, 0.03, 3)
        a = [level + rng.normal(0, 0.02, 21) for level in levels]
        b = [np.ones(21)] * 3
        together = ratio_interval([np.concatenate(a)], [np.ones(63)], resamples=400)
        apart = ratio_interval(a, b, resamples=400)
        pooled += not together.low <= 1.0 <= together.high
        missed += not apart.low <= 1.0 <= apart.high
    assert missed < pooled and missed / trials < 0.25


def test_an_interval_tells_two_apart() -> None:
    rng = np.random.default_rng(0)
    slow, fast = 1.1 + rng.normal(0, 0.02, 31), 1.0 + rng.normal(0, 0.02, 31)
    found = ratio_interval([slow], [fast])
    assert 1.05 < found.low < found.median < found.high < 1.15


@pytest.mark.parametrize("rounds", [[], [[1.0]], [[1.0, 1.0], [1.0]]])
def test_an_interval_needs_rounds(rounds: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="two rounds"):
        ratio_interval(rounds, rounds)


def test_what_ships_loses_when_a_rival_is_faster_beyond_doubt() -> None:
    found = judge([repetition(openvino=FAST, onnxruntime=SLOW, collage_a=SLOW)], ["collage a"])
    assert found.best == "openvino" and found.lost == ["openvino"] and not found.passed
    assert found.standings["collage a"].speedup.median == pytest.approx(1 / 1.2, rel=0.02)
    assert judge([repetition(openvino=FAST, collage_a=[1.01 * x for x in FAST])], ["collage a"]).passed


def test_the_first_model_ships_and_the_others_are_beside() -> None:
    raced = [repetition(openvino=FAST, collage_a=SLOW, collage_b=FAST)]
    assert not judge(raced, ["collage a", "collage b"]).passed
    assert judge(raced, ["collage b", "collage a"]).passed


def test_repetitions_are_judged_together_and_told_apart() -> None:
    good, bad = repetition(openvino=FAST, collage_a=FAST), repetition(openvino=FAST, collage_a=SLOW)
    found = judge([good, good, bad], ["collage a"])
    assert found.passed and found.repetitions == pytest.approx([1.0, 1.0, 1 / 1.2], rel=0.02)
    assert not judge([bad, bad, bad], ["collage a"]).passed


def test_a_model_of_other_numbers_loses_however_fast_it_is() -> None:
    found = judge([repetition({"collage a": 0.1}, openvino=SLOW, collage_a=FAST)], ["collage a"])
    assert found.wrong == ["collage a"] and not found.passed


def test_a_model_that_does_not_run_loses() -> None:
    raced = repetition(openvino=FAST)
    raced.unavailable["collage a"] = "ended with status -11"
    found = judge([raced, repetition(openvino=FAST, collage_a=FAST)], ["collage a"])
    assert found.wrong == ["collage a"] and not found.passed and "collage a" in found.unavailable


def test_a_rival_of_other_numbers_or_of_its_own_precision_is_none() -> None:
    latencies = {"openvino": SLOW, "onnxruntime": FAST, "collage_a": SLOW}
    found = judge([repetition({"onnxruntime": 0.1}, **latencies)], ["collage a"])
    assert found.best == "openvino" and found.passed
    default = repetition(openvino=SLOW, collage_a=SLOW)
    default.medians["openvino-default"], default.errors["openvino-default"] = FAST, 0.0
    default.samples["openvino-default"] = [FAST]
    found = judge([default], ["collage a"])
    assert found.best == "openvino" and found.passed and "openvino-default" in found.standings


def test_nothing_to_judge_is_an_error() -> None:
    with pytest.raises(ValueError, match="no contestant ran"):
        judge([Repetition(0, "")], [])


def test_a_steadier_model_is_told() -> None:
    unsteady = [1.0] * 18 + [2.0] * 2
    found: Verdict = judge([repetition(openvino=unsteady, collage_a=[1.0] * 20)], ["collage a"])
    assert found.standings["collage a"].steadiness == pytest.approx(2.0)
    assert found.standings["collage a"].speedup.median == pytest.approx(1.0)


def test_errors_are_relative_to_each_output() -> None:
    expected = [np.array([1.0, -100.0, np.nan]), np.array([0.1, np.inf])]
    ours = {
        "right": expected,
        "wrong": [np.array([1.0, -100.0, np.nan]), np.array([0.2, np.inf])],
        "nan": [np.array([np.nan, 1.0, np.nan]), np.array([0.1, np.inf])],
        "number": [np.array([1.0, -100.0, 3.0]), np.array([0.1, np.inf])],
        "shape": [np.array([1.0, -100.0])],
    }
    found = errors(ours, expected)
    assert found == {"right": 0.0, "wrong": 1.0, "nan": math.inf, "number": math.inf, "shape": math.inf}


def test_written_samples_are_spread_over_the_round() -> None:
    assert thinned([0.1, 0.2, 0.3]) == [0.1, 0.2, 0.3]
    kept = thinned([float(i) for i in range(1000)])
    assert len(kept) == 50 and kept[0] == 0.0 and kept[-1] == 999.0


def test_the_origin_names_commit_machine_and_versions() -> None:
    found = origin()
    assert found["machine"]["fingerprint"] and found["versions"]["numpy"] == np.__version__
    assert json.dumps(found)


def relu_file(folder: Path) -> Path:
    shape = [4, 64]
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "relu",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    path = folder / "relu.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_engines_are_raced_in_processes_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model of ours that does not load is the only loser."""
    model, report, broken = relu_file(tmp_path), tmp_path / "report.json", tmp_path / "broken.so"
    broken.write_bytes(b"no model")
    terms = ["--rounds", "2", "--seconds", "0.01", "--threads", "1", "--rivals", "openvino,onnxruntime"]
    assert main([str(model), str(broken), *terms, "--repetitions", "1", "-o", str(report)]) == 1
    assert "collage broken.so did not run: CompiledModelError" in capsys.readouterr().out
    found = json.loads(report.read_text())
    assert found["verdict"]["wrong"] == ["collage broken.so"] and not found["verdict"]["passed"]
    (raced,) = found["repetitions"]
    assert set(raced["facts"]) == {"openvino", "onnxruntime"} and max(raced["errors"].values()) == 0.0
    assert all(len(of) == 2 and min(of) > 0 for of in raced["medians"].values())


def test_without_rounds_outputs_are_compared_on_given_inputs(tmp_path: Path) -> None:
    model = relu_file(tmp_path)
    terms, inputs = Terms(0, seeds=(0,), threads=1), {"x": np.full((4, 64), -1, np.float32)}
    plain = Entry("plain", "onnxruntime-plain", model)
    (found,) = race(model, [Entry("onnxruntime", "onnxruntime", model)], terms, inputs=inputs, reference=plain)
    assert (found.reference, found.errors, found.medians) == ("plain", {"onnxruntime": 0.0}, {})
    gone = Entry("gone", "onnxruntime-plain", tmp_path / "gone.onnx")
    (found,) = race(model, [Entry("onnxruntime", "onnxruntime", model)], terms, inputs=inputs, reference=gone)
    assert set(found.unavailable) == {"gone"}


@pytest.mark.parametrize("arguments", [["missing.onnx"], ["m.onnx", "--rivals", "tflite"], ["m.onnx", "--rounds", "1"]])
def test_what_cannot_be_judged_is_refused(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnx").touch()
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2 and "error:" in capsys.readouterr().err


def test_a_contestant_that_ends_says_so(tmp_path: Path) -> None:
    with pytest.raises(ContestantError, match="odd: KeyError"):
        inputs = tmp_path / "inputs.npz"
        np.savez(inputs, x=np.zeros(1))
        Contestant.start(Entry("odd", "no such kind", tmp_path), inputs, 1)
    with pytest.raises(ContestantError, match="odd ended with status 1"):
        Contestant.start(Entry("odd", "openvino", tmp_path), tmp_path / "missing.npz", 1)


def test_the_memory_of_a_contestant_is_its_own(tmp_path: Path) -> None:
    ours = np.ones(1 << 26)  # half a gigabyte
    inputs = tmp_path / "inputs.npz"
    np.savez(inputs, x=np.zeros((4, 64), np.float32))
    contestant = Contestant.start(Entry("ours", "onnxruntime", relu_file(tmp_path)), inputs, 1)
    contestant.close()
    assert 0 < contestant.facts["peak_bytes"] < ours.nbytes


def test_rivals_are_those_that_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr("benchmarks.referee.__main__.find_spec", lambda name: None if name == "torch" else name)
    assert "torch.compile" not in installed() and "openvino-default" in installed()


def test_a_null_race_is_of_one_engine_and_its_double(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The double takes the place of what ships, so that a slower one is a false alarm."""
    asked: list[Sequence[Entry]] = []

    def raced(model: Path, entries: Sequence[Entry], *_: object) -> list[Repetition]:
        asked.append(entries)
        once, again = (entry.name for entry in entries)
        return [repetition(**{once: FAST, again: FAST})]

    monkeypatch.setattr("benchmarks.referee.__main__.race", raced)
    model, ships, report = relu_file(tmp_path), tmp_path / "ships.so", tmp_path / "report.json"
    ships.touch()
    assert main([str(model), str(ships), "--null", "openvino", "-o", str(report)]) == 0
    assert main([str(model), str(ships), "--null", "collage"]) == 0
    assert [[(e.name, e.kind, e.file) for e in entries] for entries in asked] == [
        [("openvino", "openvino", model), ("openvino again", "openvino", model)],
        [("collage", "collage", ships), ("collage again", "collage", ships)],
    ]
    found = json.loads(report.read_text())["verdict"]
    assert found["ships"] == "openvino again" and found["standings"]["openvino again"]["speedup"]["median"] == 1.0
    with pytest.raises(SystemExit):
        main([str(model), "--null", "collage"])
    assert "needs a compiled model" in capsys.readouterr().err
