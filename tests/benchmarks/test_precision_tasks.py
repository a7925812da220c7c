"""Tasks of trained networks, and the model of errors: metrics, samples, random placements, statistics, tables."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.precision import error_model, suite, tasks
from benchmarks.precision.error import error_of
from benchmarks.precision.error_model import Network, Point, cut, measured, placement, statistics
from benchmarks.precision.judged import Judged
from benchmarks.precision.metrics import Classification, Detection, Reading, edit_distance
from benchmarks.precision.quantise import Validation
from benchmarks.precision.rendered import voice_with_pauses
from benchmarks.precision.rivals import by_nncf
from benchmarks.precision.tasks import TASKS, Given, decisions, markdown, score_of
from benchmarks.wild.models import MODELS
from benchmarks.workloads import build
from collage.annotations.precision import BF16, INT8
from collage.backends.onnx.openvino import OpenVINOBackend
from collage.backends.onnx.openvino_bf16 import OpenVINOBf16Backend
from collage.cost.cost import Cost
from collage.deployed.plan_runner import PlanRunner
from collage.frontend import load
from collage.graph.candidates import CandidatePartition
from collage.graph.from_relax import read_graph
from collage.graph.index_set import IndexSet
from collage.graph.sub_graph import SubGraph


def letters(*classes: int) -> list[np.ndarray]:
    """Outputs that have these classes."""
    return [np.eye(4, dtype=np.float32)[list(classes)][None]]


def test_reading_leaves_out_blanks_and_repetitions() -> None:
    reading = Reading(("", "a", "b", " "))
    assert reading.read(letters(1, 1, 0, 1, 3, 2, 0, 3)) == "aa b"
    assert reading(letters(1, 2), "ab") == 1.0
    assert reading(letters(1, 0), "ab") == 0.5
    assert reading(letters(1, 2, 1, 2), "a") == 0.0


@pytest.mark.parametrize(("left", "right", "steps"), [("", "", 0), ("a", "", 1), ("kitten", "sitting", 3)])
def test_edit_distances(left: str, right: str, steps: int) -> None:
    assert edit_distance(left, right) == steps


def test_classes_and_detections() -> None:
    assert Classification()([np.array([[0.1, 0.9]])], 1) == 1.0
    assert Classification()([np.array([[0.1, 0.9]])], 0) == 0.0
    assert Detection()([np.array([0.1, 0.9])], [True, True]) == 0.5
    assert decisions([np.array([0.2, 0.7])]) == [False, True]


def test_metrics_travel_to_other_processes() -> None:
    reading = pickle.loads(pickle.dumps(Reading(("", "a"))))
    assert reading.characters == ("", "a")


def test_a_voice_has_frames_that_overlap_and_pauses() -> None:
    frames = voice_with_pauses(60, np.random.default_rng(0))
    assert frames.shape == (60, 576) and frames.dtype == np.float32
    assert np.array_equal(frames[0, -64:], frames[1, :64])
    loudness = np.sort(frames.std(axis=1))
    assert loudness[-1] > 3 * loudness[0]


def test_tasks_are_of_networks_that_there_are() -> None:
    assert {task.model for task in TASKS.values()} <= {model.name for model in MODELS}
    assert len(TASKS) == 3


class _Model:
    outputs = (None,)

    def create_infer_request(self) -> _Model:
        return self

    def infer(self, sample: dict[str, np.ndarray]) -> list[np.ndarray]:
        return [sample["x"]]


def test_accuracy_control_can_go_by_a_metric() -> None:
    several = [{"x": np.array([0.0, 1.0])}, {"x": np.array([1.0, 0.0])}]
    validation = Validation(several, Classification(), [1, 1])
    assert validation(_Model(), range(2)) == (0.5, [1.0, 0.0])
    assert validation.value == 0.5


def test_what_nncf_says_of_a_drop_goes_with_it(tmp_path: Path) -> None:
    """The interpreter is a script that prints what it was given."""
    import onnx

    model, python = tmp_path / "m.onnx", tmp_path / "python"
    onnx.save(build("tiny_bert"), model)
    python.write_text("#!/bin/sh\necho '{\"given\": \"'$*'\"}'\n")
    python.chmod(0o755)
    found = by_nncf(model, tmp_path / "s.npz", tmp_path / "o.xml", suite.Nncf(str(python)), 0.02, ["--metric", "m"])
    assert found["given"].endswith("o.xml --transformer --max-drop 0.02 --metric m")


def test_accuracy_control_that_does_not_end_says_how_far_it_was(tmp_path: Path) -> None:
    import onnx

    model, python = tmp_path / "m.onnx", tmp_path / "python"
    onnx.save(build("tiny_resnet"), model)
    python.write_text("#!/bin/sh\necho '{\"validations\": 7}'\nexec sleep 60\n")
    python.chmod(0o755)
    with pytest.raises(Exception, match=r'no end in 1 s \{"validations": 7\}'):
        by_nncf(model, tmp_path / "s.npz", tmp_path / "o.xml", suite.Nncf(str(python), 1.0), 0.02)


def test_drops_are_of_the_mean_score() -> None:
    score = score_of(Classification(), [0, 1])
    assert score([[np.array([1.0, 0.0])], [np.array([1.0, 0.0])]]) == 0.5
    prepared: Any = None
    given = Given(prepared, Classification(), [0, 1], [], ([], []), 0.75)
    assert given.drop(Judged(None)) == float("inf")
    assert given.drop(Judged(error_of([[np.ones(1)]], [[np.ones(1)]]), score=0.5)) == 0.25


def test_the_table_of_tasks_says_where_labels_are_from() -> None:
    ratio = {"name": "openvino-bf16", "ratio": 1.5, "low": 1.4, "high": 1.6}
    cells = {
        "0.001": {"budget": 0.001, "commit": "abc", "ours": {"drop": 0.0005}, "rival": ratio},
        "0.02": {"budget": 0.02, "commit": "abc", "ours": {"drop": 0.03}, "rival": ratio, "float32": ratio},
    }
    text = markdown(
        [
            {
                "network": "read-text",
                "metric": "Reading",
                "labels": "the text that was rendered",
                "float32": 0.97,
                "cells": cells,
                "samples": 16,
                "machine": {"model": "CPU", "cores": 2},
                "versions": {},
                "made": {},
                "rivals": {
                    "openvino": {"error": {"mean": 0.0, "worst": 0.0, "samples": [0.0] * 640}},
                    "onnxruntime-int8": {"error": None, "reason": "refused"},
                },
            }
        ]
    )
    assert "| read-text | 0.1% | 0.05% | 1.50 (1.40 to 1.60) openvino-bf16 | none |" in text
    assert "| read-text | 2% | 3% | none | none |" in text
    assert "Reading 0.9700 in float32; labels: the text that was rendered." in text
    assert "; 16 samples calibrate and 640 others judge." in text


def test_only_known_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        tasks.main(["paint"])
    assert "read-text" in capsys.readouterr().err


@pytest.fixture(scope="module")
def network() -> Network:
    """One partition of a small network, with invented errors."""
    module = load(build("tiny_resnet"))
    graph = read_graph(module)
    backends = {b.name: b for b in (OpenVINOBackend(), OpenVINOBf16Backend())}
    cover = [CandidatePartition(SubGraph(graph, IndexSet(graph.coverable)), "openvino")]
    able = backends["openvino"].int8_nodes(graph, IndexSet(graph.coverable))
    errors = {INT8: dict.fromkeys(able, 1e-4), BF16: dict.fromkeys(able, 1e-6)}
    return Network(module, graph, backends, cover, error_model.ErrorTable(errors), 1)


def test_random_placements_cover_the_network_once(network: Network) -> None:
    rng = np.random.default_rng(0)
    several = [placement(network, rng) for _ in range(30)]
    for chosen in several:
        nodes = [i for candidate in chosen for i in candidate.sub_graph.inside]
        assert sorted(nodes) == list(network.graph.coverable)
        assert all(candidate.sub_graph.is_convex for candidate in chosen)
        for candidate in chosen:
            for label, products in candidate.composites:
                assert label == INT8 and products <= candidate.sub_graph.inside
    assert {len(chosen) for chosen in several} == {1, 2}
    assert {candidate.backend for chosen in several for candidate in chosen} == {"openvino", "openvino-bf16"}
    predicted = {error_model.predicted(network, chosen) for chosen in several}
    assert len(predicted) > 10


def test_cuts_keep_the_order() -> None:
    rng = np.random.default_rng(0)
    found = [cut([3, 5, 8], rng) for _ in range(20)]
    assert [IndexSet([3]), IndexSet([5, 8])] in found and [IndexSet([3, 5, 8])] in found
    assert cut([4], rng) == [IndexSet([4])]


def test_statistics_of_points() -> None:
    points = [Point(1, 1, x, x, 2 * x) for x in (0.01, 0.02, 0.03, 0.04)]
    assert statistics(points) == pytest.approx({"points": 4, "rank": 1.0, "median": 2.0, "low": 2.0, "high": 2.0})
    assert statistics(points, "seen")["high"] == pytest.approx(1.0)
    assert statistics([Point(0, 1, 0.0, 0.0, 0.0)]) == {"points": 0}
    assert measured([[np.array([1.1])], [np.array([1.0])]], [[np.ones(1)], [np.ones(1)]]) == pytest.approx(0.1 / 2**0.5)


def test_a_placement_that_fails_is_counted(tmp_path: Path, network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of the placements count."""
    calls: list[int] = []

    def outputs(runner: PlanRunner, chosen: Any, samples: Sequence[Any]) -> Any:
        calls.append(1)
        if len(calls) == 1:
            return Cost.invalid("cannot")
        return [[np.full(1, 1.0 + 0.01 * len(calls))]] * len(samples)

    class Reference:
        def __init__(self, *given: Any) -> None:
            self.outputs = [np.ones(1)]

        def on(self, sample: Any) -> Reference:
            return self

    monkeypatch.setattr(error_model, "prepare", lambda *given: network)
    monkeypatch.setattr(PlanRunner, "outputs", outputs)
    monkeypatch.setattr(error_model, "ReferenceRun", Reference)
    options = SimpleNamespace(threads=1, work=tmp_path, samples=1, seed=0, placements=6)
    result = error_model.judge("tiny_resnet", options)  # type: ignore[arg-type]
    assert result["failures"] == ["cannot"] and len(result["points"]) == 5
    assert result["points"][0]["measured"] == pytest.approx(0.02) == result["points"][0]["seen"]
    assert f"| tiny_resnet | {result['statistics']['points']} |" in error_model.markdown([result])
