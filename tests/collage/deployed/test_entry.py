"""Contestants in processes of their own: asleep between requests, checked, replaced once, ended when hopeless."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper

from collage.deployed import entry as entry_module
from collage.deployed.entry import STOPPED, Entry
from collage.deployed.messages import Check, Checked, Failed, Load, Loaded, Samples, Time
from collage.deployed.process import Contestant, ContestantLost, NoAnswer
from collage.deployed.protocol import EndToEnd

X = np.arange(6, dtype=np.float32).reshape(2, 3)
QUICK = EndToEnd(calls=2, turn_s=(0.001, 0.01))


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """ONNX Runtime by itself, on a network that doubles."""
    folder = tmp_path_factory.mktemp("contestant")
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])],
        "double",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, X.shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "double.onnx")
    np.save(folder / "x.npy", X)
    np.save(folder / "right.npy", 2 * X)
    np.save(folder / "wrong.npy", 3 * X)
    return Load("onnxruntime", str(folder / "double.onnx"), (str(folder / "x.npy"),), 1)


def expected(load: Load, name: str = "right") -> tuple[str, ...]:
    return (str(Path(load.path).with_name(f"{name}.npy")),)


@pytest.fixture(scope="module")
def real(load: Load) -> Iterator[Entry]:
    found = Entry(load, expected(load), 1e-4)
    yield found
    found.park()


def state(found: Entry) -> str:
    return str(psutil.Process(found.processes[0]).status())


def test_it_is_checked_and_timed_and_asleep_between(real: Entry) -> None:
    assert real.ready(float("inf")) and real.problem is None and real.resident > 0
    assert state(real) == psutil.STATUS_STOPPED
    turn = real.turn(QUICK, 1.0)
    assert len(turn) >= 2 and min(turn) > 0
    assert state(real) == psutil.STATUS_STOPPED


def test_a_turn_of_long_calls_is_one_call(real: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    assert real.ready(float("inf"))
    asked: list[Time] = []
    monkeypatch.setattr(Contestant, "ask", lambda _, request, limit: asked.append(request) or Samples((1e-6,)))
    for latency, least in ((1e-3, 2), (1.0, 1)):
        monkeypatch.setattr(real, "latency", latency)
        assert real.turn(QUICK, 1.0) == (1e-6,)
        assert asked[-1].least == least and asked[-1].seconds <= QUICK.turn_s[1]


@pytest.mark.parametrize(("latency", "timed", "warm"), [(48e-3, 2, 1), (0.15, 1, 1), (21e-3, 5, 2), (1e-3, 10, 5)])
def test_a_turn_lasts_as_long_as_it_should_whatever_a_call_takes(
    real: Entry, monkeypatch: pytest.MonkeyPatch, latency: float, timed: int, warm: int
) -> None:
    assert real.ready(float("inf"))
    asked: list[Time] = []
    monkeypatch.setattr(Contestant, "ask", lambda _, request, limit: asked.append(request) or Samples((latency,)))
    monkeypatch.setattr(real, "latency", latency)
    real.turn(EndToEnd(), 1.0)
    (request,) = asked
    begun = [max(least, math.ceil(s / latency)) for s, least in ((request.seconds, request.least), (request.warm, 1))]
    assert begun == [timed, warm]


def test_a_process_that_is_killed_is_replaced_once(real: Entry) -> None:
    assert real.ready(float("inf"))
    (first,) = real.processes
    os.kill(first, signal.SIGKILL)
    assert real.turn(QUICK, 1.0) and real.processes != (first,)
    os.kill(real.processes[0], signal.SIGKILL)
    assert real.turn(QUICK, 1.0) == () and real.problem is not None
    assert real.problem.is_unknown, "somebody killed it: it may be run another day"
    assert "SIGKILL" in real.problem.reason and real.processes == ()


def test_wrong_numbers_put_it_out(load: Load) -> None:
    found = Entry(load, expected(load, "wrong"), 1e-4)
    assert not found.ready(float("inf"))
    assert found.problem is not None and found.problem.is_invalid and "wrong result" in found.problem.reason


class Scripted:
    """A contestant that answers as it is told."""

    answers: list[Any]
    number = 1

    def __init__(self) -> None:
        self.loaded = False

    def load(self, request: Load, timeout_s: float) -> Any:
        self.loaded = True
        return self.ask(request, timeout_s)

    def ask(self, request: Any, timeout_s: float) -> Any:
        answer = Scripted.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        pass


def scripted(monkeypatch: pytest.MonkeyPatch, load: Load, *answers: Any) -> Entry:
    monkeypatch.setattr(entry_module, "Contestant", Scripted)
    monkeypatch.setattr(Scripted, "answers", list(answers), raising=False)
    return Entry(load, (), 1e-4)


LOADED, RIGHT = Loaded(1.0, 1), Checked("", 0.001, 2)


@pytest.mark.parametrize(
    ("answers", "invalid", "reason"),
    [
        ([LOADED, NoAnswer("no answer within 3 s")], True, STOPPED),
        ([Failed("does not run: no such layer")], True, "no such layer"),
        ([LOADED, ContestantLost("exit status 1"), LOADED, ContestantLost("exit status 1")], True, "crashes: exit"),
        ([LOADED, ContestantLost("killed", killed=True), ContestantLost("killed", killed=True)], False, "killed"),
        ([NoAnswer("no answer within 300 s"), NoAnswer("no answer within 300 s")], False, "no answer"),
    ],
)
def test_who_is_to_blame(
    monkeypatch: pytest.MonkeyPatch, load: Load, answers: list[Any], invalid: bool, reason: str
) -> None:
    found = scripted(monkeypatch, load, *answers)
    assert not found.ready(0.001)
    assert found.problem is not None and reason in found.problem.reason
    assert found.problem.is_invalid == invalid and found.problem.is_unknown != invalid


def test_one_that_is_parked_for_room_is_loaded_again_and_its_first_call_does_not_count(
    monkeypatch: pytest.MonkeyPatch, load: Load
) -> None:
    found = scripted(monkeypatch, load, LOADED, RIGHT, LOADED, RIGHT, Samples((0.002, 0.004)))
    assert found.ready(1.0) and found.latency == 0.001
    found.park()
    assert not found.is_loaded
    assert found.turn(QUICK, 1.0) == (0.002, 0.004) and found.latency == pytest.approx(0.003)


def test_a_process_that_does_not_answer_is_ended(load: Load) -> None:
    contestant = Contestant()
    try:
        contestant.load(load, 60.0)
        contestant.ask(Check(expected(load), 1e-4), 60.0)
        with pytest.raises(NoAnswer):
            contestant.ask(Time(30.0, 1, 0.0), 0.2)
        with pytest.raises(psutil.NoSuchProcess):
            psutil.Process(contestant.number)
    finally:
        contestant.close()
