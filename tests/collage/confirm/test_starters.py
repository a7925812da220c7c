"""Who is tried, and who starts in a race."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collage.confirm.confirmation import UNTOUCHED
from collage.confirm.starters import hopeless, starters
from collage.deployed.rivals import Rival
from collage.testing.problems import problem_of
from tests.collage.confirm.races import GRAPH, placement

ENGINES = {"collage": "x", "x on the file": "x", "y on the file": "y"}
#: Backends as far as it is asked for here.
X, Y, TVM = (
    SimpleNamespace(name=name, style=style) for name, style in (("x", "graph"), ("y", "graph"), ("t", "native"))
)


def left_out(costs: dict[str, float], *others: Any, backends: tuple[Any, ...] = (X, Y, TVM)) -> dict[str, str]:
    """Name -> reason; x is the searched placement."""
    problem = problem_of(GRAPH, {c: cost for backend, cost in costs.items() for c in placement(backend)})
    plans = {backend: problem.partitioning(placement(backend)) for backend in costs}
    baselines = {f"{backend} alone": plan for backend, plan in plans.items()}
    found = hopeless(problem, plans["x"], baselines, backends, *others)
    return {name: contestant.latency.reason for name, contestant in found.items()}


def test_baselines_whose_costs_are_far_higher_are_not_run_unless_a_rival_shows_that_sums_may_err() -> None:
    costs, rivals = {"x": 1.0, "y": 2.0, "openvino": 2.0}, [Rival("openvino", Path("model.onnx"), "2026.4")]
    assert set(out := left_out(costs, rivals)) == {"y alone"} and "2 times" in out["y alone"]
    assert set(left_out(costs, rivals, ["openvino on the file"])) == {"y alone", "openvino alone"}, (
        "it runs on the file"
    )


@pytest.mark.parametrize(("seconds", "times", "runs"), [(1.0, 1.4, False), (1e-4, 2.4, True), (1e-4, 4.1, False)])
def test_sums_of_costs_may_err_by_more_where_partitions_take_microseconds(
    seconds: float, times: float, runs: bool
) -> None:
    assert ("y alone" in left_out({"x": seconds, "y": seconds * times})) is not runs


def test_tvms_own_build_is_left_out_with_its_scheduled_kernels_and_where_nobody_asked_for_tvm() -> None:
    assert UNTOUCHED not in left_out({"x": 1.0, "t": 1.1})
    assert "scheduled kernels" in left_out({"x": 1.0, "t": 2.0})[UNTOUCHED]
    assert "not among the backends" in left_out({"x": 1.0, "y": 1.1}, backends=(X, Y))[UNTOUCHED]


def test_who_lost_in_the_trials_does_not_race() -> None:
    assert starters({"a": 1.0, "b": 1.16, "c": 0.9, "d": 1.0}, {}) == ["c", "a", "d"]


@pytest.mark.parametrize(
    ("file", "names"),
    [
        (0.98, ["x on the file", "y on the file", "mixture"]),
        (1.01, ["y on the file", "x on the file", "mixture"]),
        (1.04, ["collage", "y on the file", "x on the file", "mixture"]),
    ],
)
def test_an_engines_plan_races_beside_its_file_only_where_it_seems_to_be_faster(file: float, names: list[str]) -> None:
    seconds = {"collage": 1.0, "x on the file": file, "y on the file": 1.005, "mixture": 1.05}
    assert starters(seconds, ENGINES) == names


def test_where_the_file_lost_or_does_not_run_the_engines_plan_races() -> None:
    assert starters({"collage": 1.0, "x on the file": 1.2}, ENGINES) == ["collage"]
    assert starters({"collage": 1.0, "mixture": 1.1}, ENGINES) == ["collage", "mixture"]
