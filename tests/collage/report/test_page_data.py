"""What the page's data say: transitions at borders, one call, candidates, and which contestants are drawn."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from collage.report.borders import borders, bytes_of
from collage.report.page_data import page_data, plan_data
from tests.collage.report.networks import with_network, with_timeline
from tests.collage.report.plans import plan


@pytest.mark.parametrize(
    ("text", "size"),
    [("float32[2,3]", 24), ("float16[]", 2), ("(int64[4], bool8[2])", 34), ("float32[n,4]", 0), ("", 0)],
)
def test_types_have_sizes(text: str, size: int) -> None:
    assert bytes_of(text) == size


def test_transitions_are_of_neighbours_on_other_backends() -> None:
    found = borders(with_network(2))
    tensor = 4 * 64 * 56 * 56
    assert found[0] == [] and found[4] == []  # the input is nobody's; the host is not charged
    assert [(b["producer"], b["backend"], b["bytes"], b["ms"]) for b in found[1]] == [(0, "openvino", tensor, 0.01)]
    assert [(b["producer"], b["backend"], b["ms"]) for b in found[2]] == [(1, "tvm", 0.02)]


def test_what_passes_through_the_host_comes_from_who_made_it() -> None:
    ours = with_network(2)
    moved = (*ours.partitions[:1], replace(ours.partitions[1], backend="host"), *ours.partitions[2:])
    assert borders(replace(ours, partitions=moved))[2] == [], "openvino hands over to openvino"
    other = replace(moved[2], backend="tvm")
    assert [b["producer"] for b in borders(replace(ours, partitions=(*moved[:2], other, *moved[3:])))[2]] == [0]


def test_one_call_is_its_partitions_and_what_is_left() -> None:
    calls = plan_data(with_network(3))["calls"]
    assert [bar["partition"] for bar in calls["bars"]] == list(range(6))
    assert calls["bars"][1] == {"partition": 1, "name": "", "start": 1.1, "end": 1.5}
    assert calls["sum"] == pytest.approx(4.5) and calls["rest"] == pytest.approx(0.5)
    assert not calls["starts"]


def test_partitions_stand_at_their_starts_and_gaps_have_names() -> None:
    calls = plan_data(with_timeline(with_network(2)))["calls"]
    assert calls["starts"] and [bar["partition"] for bar in calls["bars"]] == [0, -2, 1, -1, 2, -2, 3]
    assert calls["bars"][1] == {"partition": -2, "name": "between 1 (openvino) and 2 (tvm)", "start": 1.0, "end": 1.1}
    assert calls["bars"][3] == {"partition": -1, "name": "fused_reshape", "start": 1.5, "end": 1.6}
    assert calls["end"] == pytest.approx(3.1) and calls["rest"] == pytest.approx(1.9)


def test_candidates_that_were_predicted_and_measured_are_the_estimators_chart() -> None:
    found = plan_data(with_network(3))["estimator"]
    (point,) = found["charts"][0]["points"]
    assert point[:4] == (1.0, pytest.approx(1.0198), 0.8, 1.3) and "measured 1 ms" in point[5]
    assert "measured: 1. Inside of the predicted interval: 1." in found["text"][0]
    assert plan_data(plan())["estimator"] is None


def test_the_estimators_chart_of_a_plan_that_was_edited_names_nodes() -> None:
    ours = with_network(3)
    assert ours.candidates is not None
    edited = (replace(ours.candidates.listed[0], nodes="9000-9001"),)
    found = plan_data(replace(ours, candidates=replace(ours.candidates, listed=edited)))["estimator"]
    assert "nodes 9000-9001" in found["charts"][0]["points"][0][5]


def test_what_was_stopped_early_is_not_drawn() -> None:
    drawn = {row["name"]: row["drawn"] for row in plan_data(with_network())["contest"]}
    assert drawn["tvm alone"] is None and drawn["openvino alone"] == [1.12, 1.11, pytest.approx(1.13)]


def test_candidates_say_how_they_are_known() -> None:
    found = plan_data(with_network(3))["candidates"]
    assert found["alike"] == [0, 1, 0, 1, 0, 1, 6] and found["more"][0] == 7
    first, _, not_asked = found["listed"][:3]
    assert first[:2] == [0, "openvino"] and first[3:7] == ["measured", 1.0, "1 ± 0.02", "0.8 to 1.3"]
    assert list(first[2]) == [0, 1, 2] and not_asked[3:7] == ["not asked", None, "", "2 to 4"]


def test_candidates_of_a_plan_that_was_edited_are_left_out() -> None:
    ours = with_network(3)
    assert plan_data(replace(ours, partitions=ours.partitions[:-1]))["candidates"] is None


def test_the_data_are_json() -> None:
    text = json.dumps(page_data([with_network(), plan()], "two"), allow_nan=False)
    assert json.loads(text)["shapes"]["columns"][0] == "shapes"
