"""The plan's file: what is written is read again, numbers without a JSON form included, and saving is atomic."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from collage.confirm.confirmation import Confirmation, Contestant
from collage.cost.cost import Cost
from collage.cost.transition import Transition
from collage.errors import PlanError
from collage.planned.data import PlanData, PlannedPartition, PlannedTransition, PlanRound
from collage.planned.file import read, to_dict, write

#: As Collage wrote it before there was `PlanData`.
VERSION_2: dict[str, Any] = {
    "format": "collage-plan",
    "version": 2,
    "network": "0123",
    "choice": "collage",
    "threads": 2,
    "backends": {"tvm": "0.25"},
    "searcher": "DijkstraSearcher()",
    "estimator": "MeasuredEstimator",
    "searched_cost": {"seconds": 1e-3, "spread": 1e-5, "samples": 0, "reason": ""},
    "lower_bound_s": 9e-4,
    "corrected_cost": {"seconds": None, "spread": 0.0, "samples": 0, "reason": "not run"},
    "rounds": [
        {
            "partitions": 1,
            "searched_s": 1e-3,
            "isolated_s": None,
            "loss": None,
            "latency": {"seconds": "invalid", "spread": 0.0, "samples": 0, "reason": "crashes"},
        }
    ],
    "confirmation": {
        "shipped": "collage",
        "rivals": [
            {
                "name": "collage",
                "ratio": [1.0, 0.9, 1.1],
                "partition_seconds": [1e-3],
                "latency": {"seconds": 1e-3, "spread": 1e-5, "samples": 9, "reason": "converged"},
            },
            {
                "name": "tvm alone",
                "ratio": None,
                "partition_seconds": [],
                "latency": {"seconds": "invalid", "spread": 0.0, "samples": 0, "reason": "crashes"},
            },
        ],
    },
    "notes": ["a note"],
    "partitions": [
        {
            "backend": "tvm",
            "nodes": [1, 2],
            "operators": ["relax.add", "relax.nn.relu"],
            "composites": [["tvm.fused", [1, 2]]],
            "cost": {"seconds": 1e-3, "spread": 1e-5, "samples": 9, "reason": "converged"},
            "runner_up": "",
            "runner_up_cost": {"seconds": None, "spread": 0.0, "samples": 0, "reason": ""},
        }
    ],
}


def _written(tmp_path: Path, data: Any) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(data))
    return path


def test_a_file_of_version_2_is_read(tmp_path: Path) -> None:
    data = read(_written(tmp_path, VERSION_2))
    assert (data.network, data.device, data.versions, data.lower_bound) == ("0123", "cpu", {"tvm": "0.25"}, 9e-4)
    assert data.corrected_cost.is_unknown and data.corrected_cost.reason == "not run"
    (found,) = data.rounds
    assert found.searched == 1e-3 and math.isnan(found.isolated) and math.isinf(found.loss) and found.latency.is_invalid
    assert data.confirmation is not None
    assert data.confirmation.of("collage") == Contestant(
        "collage", Cost(1e-3, 1e-5, 9, "converged"), (1.0, 0.9, 1.1), (1e-3,)
    )
    assert data.confirmation.of("tvm alone").latency.is_invalid
    assert data.partitions[0].composites == (("tvm.fused", (1, 2)),) and data.partitions[0].runner_up_cost.is_unknown


def test_a_file_is_written_as_it_was_read(tmp_path: Path) -> None:
    again = to_dict(read(_written(tmp_path, VERSION_2)))
    later = {"launch_seconds": [], "percentile": None, "quiet": None, "rival": False, "fresh": False}
    assert again["confirmation"].pop("disturbed") == 0.0
    for contestant in again["confirmation"]["rivals"]:
        assert {name: contestant.pop(name) for name in later} == later  # files of old leave them out
    assert again == VERSION_2
    assert list(again) == list(VERSION_2)


def test_what_changes_of_backend_were_charged_is_kept(tmp_path: Path) -> None:
    measured = ((1024, -2e-6, 1e-6), (4096, 9e-6, 1e-6))
    charged = PlannedTransition("tvm", "x", Transition(1e-6, 1e-12, 5e-7, measured))
    copied = PlannedTransition("x", "tvm", replace(charged.transition, like="tvm -> x"))
    data = structs.replace(read(_written(tmp_path, VERSION_2)), transitions=(charged, copied))
    assert read(_written(tmp_path, to_dict(data))).transitions == (charged, copied)


def test_another_device_is_kept(tmp_path: Path) -> None:
    data = read(_written(tmp_path, {**VERSION_2, "device": "cuda"}))
    assert data.device == "cuda" and to_dict(data)["device"] == "cuda"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"threads": "two"}, r"missing or wrong: .*threads"),
        ({"partitions": [{"backend": "tvm"}]}, r"missing or wrong: .*nodes"),
        ({"searched_cost": {"seconds": -1.0}}, r"missing or wrong: .*negative"),
        ({"version": 1}, "a plan of version 1; this Collage reads version 2"),
        ({"format": "other"}, "not a plan written by Collage"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        read(_written(tmp_path, {**VERSION_2, **changed}))


def test_a_field_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="missing required field `choice`"):
        read(_written(tmp_path, {name: value for name, value in VERSION_2.items() if name != "choice"}))


def test_a_plan_that_cannot_be_written_whole_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _written(tmp_path, VERSION_2)
    data = read(path)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PlanError, match="cannot write the plan: No space left on device"):
        write(data, path)
    assert json.loads(path.read_text()) == VERSION_2
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]


def test_what_is_not_finite_survives(tmp_path: Path) -> None:
    unknown, invalid = Cost.unknown("no record"), Cost.invalid("crashes")
    data = PlanData(
        network="n",
        choice="collage",
        threads=1,
        versions={},
        rounds=(PlanRound(1, math.nan, math.nan, invalid, math.inf),),
        confirmation=Confirmation("collage", (Contestant("collage", invalid),)),
        partitions=(PlannedPartition("tvm", (0,), ("relax.add",), cost=unknown, runner_up_cost=invalid),),
    )
    write(data, tmp_path / "folder" / "plan.json")
    assert repr(read(tmp_path / "folder" / "plan.json")) == repr(data)
