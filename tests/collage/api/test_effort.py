"""Effort levels choose estimators and rounds; what the caller gives wins."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

from collage import plugins
from collage.api import offer, partitioner
from collage.api.effort import EFFORTS, Effort
from collage.api.partitioner import partition
from collage.cost.cost import Cost
from collage.cost.estimator import CostEstimator, Workload
from collage.errors import CollageError, PluginError
from collage.runtime.device_info import DeviceInfo

HERE = DeviceInfo("cpu", "a processor", ("avx2",), 2, 0, "Linux", "x86_64")
QUICK, NORMAL, THOROUGH = EFFORTS.values()


class Stand(CostEstimator):
    """Serves what it is told to."""

    def __init__(self, name: str, serving: bool, **parameters: Any) -> None:
        self.name, self.serving, self.given = name, serving, parameters

    def serves(self, device: DeviceInfo, backends: Collection[str], threads: int) -> bool:
        return self.serving

    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        return [Cost(1.0) for _ in workloads]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the estimators that serve this machine."""
    serving = {"learned", "active", "measured"}

    def stand_in(kind: str, name: str, **parameters: Any) -> Stand:
        return Stand(name, name in serving, **parameters)

    monkeypatch.setattr(plugins, "load", stand_in)
    return serving


@pytest.mark.parametrize(
    ("effort", "estimators"),
    [("quick", ("learned", "active", "measured")), ("normal", ("active", "measured")), ("thorough", ("measured",))],
)
def test_an_effort_takes_its_first_estimator_that_serves(
    effort: str, estimators: tuple[str, ...], load: set[str]
) -> None:
    for passed, expected in enumerate(estimators):
        chosen, notes = Effort.of(effort).estimator(HERE, ["tvm"], 2, {})
        assert isinstance(chosen, Stand) and chosen.name == expected
        assert [note.split(": ")[1].split()[0] for note in notes] == list(estimators[:passed])
        load.discard(expected)
    chosen, _ = Effort.of(effort).estimator(HERE, ["tvm"], 2, {})
    assert isinstance(chosen, Stand) and chosen.name == "measured", "which serves everywhere"


def test_parameters_of_the_caller_win_over_those_of_the_effort(load: set[str]) -> None:
    chosen, _ = NORMAL.estimator(HERE, ["tvm"], 2, {"share": 0.9})
    assert isinstance(chosen, Stand)
    assert chosen.given == {**NORMAL.parameters["active"], "share": 0.9}


def test_the_parameters_of_each_effort_are_those_of_its_estimators() -> None:
    for effort in EFFORTS.values():
        for name in effort.estimators:
            plugins.load("estimators", name, **effort.parameters.get(name, {}))


def test_more_effort_is_more_of_everything() -> None:
    for less, more in ((QUICK, NORMAL), (NORMAL, THOROUGH)):
        assert less.correction_rounds <= more.correction_rounds
        assert less.race_rounds < more.race_rounds and less.final_rounds < more.final_rounds
    assert QUICK.estimators[0] == "learned" and QUICK.correction_rounds == 0, "no candidate is measured"
    quick, normal = QUICK.parameters["active"], NORMAL.parameters["active"]
    assert all(2 * quick[name] < normal[name] for name in ("share", "least", "most")), "where no model is near"


def test_an_effort_of_the_caller_s_own_is_taken_as_it_is() -> None:
    own = Effort("own", ("cached",), correction_rounds=7, race_rounds=1, final_rounds=1)
    assert Effort.of(own) is own


def test_an_unknown_effort_lists_the_valid_ones() -> None:
    with pytest.raises(CollageError, match="'much'; valid names: quick, normal, thorough"):
        partition("no.onnx", effort="much")


@pytest.mark.parametrize(
    ("options", "estimator"),
    [
        ({}, "active"),
        ({"effort": "quick"}, "learned"),
        ({"effort": THOROUGH}, "measured"),
        ({"effort": "quick", "estimator": "cached"}, "cached"),
    ],
)
def test_partition_goes_by_the_effort_and_by_what_is_explicit_before_that(
    options: dict[str, Any], estimator: str, load: set[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: dict[str, Any] = {}

    class Reached(Exception):
        pass

    def stop(module: Any, *_: Any) -> Any:
        raise Reached

    def noting(*given: Any) -> Any:
        seen["estimator"] = (found := offer.offer(*given)).estimator.name  # type: ignore[attr-defined]
        return found

    monkeypatch.setattr(offer, "resolve_on", lambda wanted, devices, precisions: {})
    monkeypatch.setattr(offer, "available_backends", lambda device, precisions: [])
    monkeypatch.setattr(partitioner, "offer", noting)
    monkeypatch.setattr(partitioner, "load", stop)
    with pytest.raises(Reached):
        partition("no.onnx", records=tmp_path / "records.db", **options)
    assert seen["estimator"] == estimator


def test_a_parameter_that_the_effort_s_estimator_does_not_take_is_an_error() -> None:
    with pytest.raises(PluginError, match="the estimator active has no parameter widht"):
        NORMAL.estimator(HERE, ["tvm"], 2, {"widht": 1})
