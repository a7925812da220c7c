"""A run that is stopped goes on where it was; a race tells what is right, what is fast, and what failed."""

from __future__ import annotations

import json
import os
import pickle
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from benchmarks.gpu.contestant import REFERENCE, Load, Loaded, Timed
from benchmarks.gpu.isolated import Isolated
from benchmarks.gpu.ledger import Budget, Ledger, OutOfTime, Step, run
from benchmarks.gpu.numerics import examine, of_device, reference
from benchmarks.gpu.peers import PEERS
from benchmarks.gpu.race import Result, error_of, race
from benchmarks.gpu.session import OURS, ROWS, Session, steps

pytestmark = pytest.mark.emulation

TUNE = Step("tune", "net", "float32", 1, "dijkstra", least_s=10.0, most_s=100.0)
RACE = Step("race", "net", "float32", 1, "peers", (("tune", "dijkstra"),), (), ("ours", "peer"), 10.0, 50.0)
LONG = Step("tune", "net", "float32", 1, "dijkstra", least_s=10.0, most_s=100.0, resumable=True)
OTHER = Step("tune", "other", "float32", 1, "dijkstra", least_s=2.0, most_s=5.0)


class Machine:
    """Steps take the time that they are said to take, and end as they are said to end."""

    def __init__(self, takes: Mapping[str, float], ends: Mapping[str, str] | None = None) -> None:
        self.now = 0.0
        self.takes = takes
        self.ends = ends or {}
        self.finds = 0
        self.contenders: list[tuple[str, ...]] = []
        self.taken: list[tuple[str, float]] = []
        self.said: list[str] = []
        self.copies = 0

    def take(self, step: Step, limit_s: float) -> dict[str, dict[str, Any]]:
        needed = self.takes[step.network + step.kind]
        self.taken.append((step.network + step.kind, limit_s))
        self.contenders.append(step.contenders)
        self.now += min(needed, limit_s)
        late = needed > limit_s
        found = {"new_records": self.finds} if late and step.resumable else {}
        return {c: {"status": "timeout" if late else self.ends.get(c, "ok"), **found} for c in step.contenders}

    def run(self, path: Path, seconds: float, todo: list[Step]) -> bool:
        budget = Budget(seconds, reserve=0.0, clock=lambda: self.now)

        def copy() -> None:
            self.copies += 1

        return run(todo, Ledger(path), budget, self.take, self.said.append, copy)


def names(machine: Machine) -> list[str]:
    return [name for name, _ in machine.taken]


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    first = Machine({"nettune": 20, "netrace": 20})
    assert first.run(rows, 1000, [TUNE, RACE])
    assert names(first) == ["nettune", "netrace"] and first.copies == 2
    again = Machine({})
    assert again.run(rows, 1000, [TUNE, RACE]) and not again.taken
    assert len(rows.read_text().splitlines()) == 3, "one row per contender"


def test_a_step_that_the_budget_cut_short_is_taken_up_again(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    short = Machine({"nettune": 60})
    assert not short.run(rows, 30, [TUNE, RACE])
    assert short.taken == [("nettune", 30)]
    assert json.loads(rows.read_text())["status"] == "skipped"
    longer = Machine({"nettune": 60, "netrace": 20})
    assert longer.run(rows, 1000, [TUNE, RACE])
    assert names(longer) == ["nettune", "netrace"]


def test_a_step_that_reached_its_own_limit_is_final_and_what_needs_it_is_left_out(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    slow = Machine({"nettune": 1000, "othertune": 1})
    slow.run(rows, 10_000, [TUNE, RACE, OTHER])
    assert slow.taken == [("nettune", 100.0), ("othertune", 5.0)]
    assert Ledger(rows).done(TUNE) and not Ledger(rows).ready(RACE)
    assert not Machine({}).run(rows, 1.0, [OTHER, TUNE]) or Ledger(rows).done(OTHER)


def test_a_shorter_step_still_fits_where_a_longer_one_does_not(tmp_path: Path) -> None:
    machine = Machine({"othertune": 1})
    assert not machine.run(tmp_path / "rows.jsonl", 5.0, [TUNE, OTHER])
    assert machine.taken == [("othertune", 5.0)]


def test_no_step_is_given_more_time_than_is_left(tmp_path: Path) -> None:
    machine = Machine({"nettune": 40, "netrace": 1000})
    assert not machine.run(tmp_path / "rows.jsonl", 60, [TUNE, RACE])
    assert machine.taken == [("nettune", 60.0), ("netrace", 20.0)] and machine.now == 60


def test_a_race_is_done_when_all_of_it_is_and_who_has_a_row_does_not_race_again(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    half = Machine({"nettune": 1, "netrace": 1}, {"peer": "skipped"})
    assert not half.run(rows, 1000, [TUNE, RACE])
    whole = Machine({"netrace": 1}, {"peer": "wrong"})
    assert whole.run(rows, 1000, [TUNE, RACE]) and names(whole) == ["netrace"]
    assert whole.contenders == [("peer",)]


def test_a_tune_goes_on_after_the_others_while_it_finds_something(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    first = Machine({"nettune": 1000, "othertune": 1})
    first.finds = 7
    assert not first.run(rows, 231, [LONG, OTHER])
    assert first.taken == [("nettune", 100.0), ("othertune", 5.0), ("nettune", 100.0), ("nettune", 30.0)]
    assert Ledger(rows).rest(LONG) == LONG
    stuck = Machine({"nettune": 1000})
    assert not stuck.run(rows, 60, [LONG]) and not Ledger(rows).done(LONG), "it had less than it may take"
    assert stuck.run(rows, 400, [LONG]) and Ledger(rows).done(LONG)


def test_a_file_that_was_cut_off_loses_its_last_row_only(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    Machine({"nettune": 1, "othertune": 1}).run(rows, 1000, [TUNE, OTHER])
    rows.write_text(rows.read_text()[:-20])
    assert Ledger(rows).done(TUNE) and not Ledger(rows).done(OTHER)


def test_the_plan_of_what_was_measured_races_where_a_tune_was_stopped(tmp_path: Path) -> None:
    planned = [step for step in steps([("net", "float32", 1)], ["peer"], evolutionary=False)]
    rows = tmp_path / "rows.jsonl"
    ledger = Ledger(rows)
    tuned, rescued, raced = planned
    assert ledger.ready(rescued) and not ledger.ready(raced)
    ledger.add([rescued.row("", {"status": "ok"})])
    assert ledger.ready(raced)
    ledger.add([tuned.row("", {"status": "ok"})])
    assert ledger.ready(raced) and not ledger.ready(rescued)


def test_the_plan_tunes_before_it_races_and_names_every_peer() -> None:
    planned = steps(ROWS, PEERS)
    seen: set[tuple[Any, ...]] = set()
    for step in planned:
        needed = [(kind, step.network, step.dtype, step.batch, variant) in seen for kind, variant in step.needs]
        assert all(needed)
        seen.add((step.kind, step.network, step.dtype, step.batch, step.variant))
        assert step.least_s < step.most_s
    raced = [step for step in planned if step.kind == "race" and step.variant == "peers"]
    assert [(step.network, step.dtype, step.batch) for step in raced] == list(ROWS)
    assert all(step.contenders == (OURS, "torch-max-autotune", *PEERS[1:]) for step in raced), "the strongest first"
    assert len(seen) == len(planned) == 5 * len(ROWS)


def test_what_takes_long_comes_after_all_rows() -> None:
    variants = [step.variant for step in steps(ROWS, PEERS)]
    last = max(number for number, variant in enumerate(variants) if variant in ("dijkstra", "peers"))
    assert variants.index("evolutionary") == last + 1


def test_errors_are_relative_to_the_largest_output() -> None:
    exact = [np.array([0.0, 10.0])]
    assert error_of([np.array([0.1, 10.0], "float16")], exact) == pytest.approx(0.01, rel=1e-2)
    for wrong in ([np.array([np.nan, 10.0])], [np.zeros(3)], []):
        assert error_of(wrong, exact) == np.inf


def test_ratios_are_those_of_turns_that_followed_each_other() -> None:
    base = Result("ok", call=[1.0, 2.0, 4.0] * 5)
    row = Result("ok", call=[2.0, 4.0, 8.0] * 5).row(base)
    assert row["call_ratio"] == [2.0, 2.0, 2.0] and row["call_s"][0] == 4.0
    json.dumps(row, allow_nan=False)


def test_a_race_times_what_is_right_and_says_what_failed() -> None:
    """PyTorch on this processor against a model of ours that is not there."""
    pytest.importorskip("torch")
    facts = {"network": "tiny_resnet", "dtype": "float32", "batch": 1, "device": "cpu"}
    results = race([Load("torch-eager", **facts), Load(OURS, **facts, library="missing.so")], time.monotonic() + 180)
    assert results["torch-eager"].status == "ok" and results["torch-eager"].error < 1e-4
    assert len(results["torch-eager"].call) >= 8 and min(results["torch-eager"].call) > 0
    assert results[OURS].status == "failed" and "missing.so" in results[OURS].reason


def test_nothing_is_known_of_contestants_where_there_was_no_time_for_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"network": "tiny_resnet", "dtype": "float32", "batch": 1, "device": "cpu"}
    with pytest.raises(OutOfTime):
        race([Load("torch-eager", **facts)], time.monotonic())

    def late(*_: Any) -> None:
        raise OutOfTime("no reference")

    monkeypatch.setattr("benchmarks.gpu.session.race", late)
    session = Session(tmp_path, "cpu", "float32")
    session.library(TUNE).touch()
    session.ledger.add([TUNE.row("", {"status": "ok"})])
    cut = Budget(20.0, reserve=0.0)
    race_step = replace(RACE, contenders=(OURS, "torch-eager"))
    assert not run([race_step], session.ledger, cut, session.take, lambda _: None, lambda: None)
    assert session.ledger.rest(race_step) == race_step
    assert session.take(race_step, 20.0)["torch-eager"] == {"status": "timeout", "reason": "no reference"}


class Scripted:
    """A contestant that answers at once; `asked` holds what all of them were asked, in order."""

    asked: ClassVar[list[str]] = []

    def __init__(self, _target: Any, load: Load, **_: Any) -> None:
        self.name = load.name
        self.asked.append(f"{self.name} start")

    def receive(self, _deadline: float) -> Any:
        self.asked.append(f"{self.name} prepared")

    def ask(self, message: Any, _deadline: float) -> Any:
        self.asked.append(f"{self.name} {message}")
        return Loaded((np.ones(1),), 0.0) if message == "load" else Timed((1.0,), (1.0,), 1.0)

    def close(self) -> None:
        pass


def test_a_row_says_what_the_device_did_meanwhile() -> None:
    states = [
        {"sm_mhz": clock, "watts": 10.0 * clock, "reasons": reasons}
        for clock, reasons in ((3.0, ()), (1.0, ("heat",)), (2.0, ("heat", "power cap")))
    ]
    row = Result("ok", states=states).row(None)
    assert row["sm_mhz"] == [1.0, 2.0, 3.0] and row["watts"] == [10.0, 20.0, 30.0]
    assert row["low_clock"] == {"heat": 2, "power cap": 1}
    assert "sm_mhz" not in Result("ok").row(None)


def test_contestants_prepare_together_and_load_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.gpu.race.Isolated", Scripted)
    monkeypatch.setattr(Scripted, "asked", [])
    results = race([Load(name, "net", "float32", 1) for name in "ab"], time.monotonic() + 60)
    asked = Scripted.asked
    assert asked[:2] == ["a start", "b start"], "both prepare while the reference is computed"
    assert asked[2:9] == [
        f"{REFERENCE} start",
        *(f"{name} {step}" for name in (REFERENCE, "a", "b") for step in ("prepared", "load")),
    ]
    assert asked[9:13] == ["a 5", "b 5", "a 5", "b 5"]
    assert len(results["a"].call) == len(results["b"].call) >= 8


def squares(last: int) -> Any:
    """A conversation: yields as many squares as it is asked for, and fails beyond `last`."""
    wanted = yield "ready"
    while wanted <= last:
        wanted = yield [number**2 for number in range(wanted)]
    raise ValueError(f"too many\n{wanted}")


def sleeping(path: Path) -> None:
    """Write down its process id, and hang."""
    path.write_text(str(os.getpid()))
    time.sleep(600)


def test_isolated_functions_answer_fail_crash_and_hang(tmp_path: Path) -> None:
    soon = time.monotonic() + 100
    with closing(Isolated(squares, 3)) as process:
        assert process.receive(soon) == "ready"
        assert process.ask(3, soon) == [0, 1, 4]
        with pytest.raises(RuntimeError, match="ValueError: 4"):
            process.ask(4, soon)
    with closing(Isolated(os._exit, 7)) as process, pytest.raises(RuntimeError, match="ended with status 7"):
        process.receive(soon)
    with closing(Isolated(sleeping, tmp_path / "pid")) as process:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            time.sleep(0.05)
        with pytest.raises(TimeoutError):
            process.receive(time.monotonic() + 0.1)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_what_an_isolated_function_prints_is_in_its_log(tmp_path: Path) -> None:
    with closing(Isolated(print, "a line", log=tmp_path / "log")) as process:
        assert process.receive(time.monotonic() + 100) is None
    assert (tmp_path / "log").read_text() == "a line\n"


def test_the_references_of_first_contact_are_near_float64(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    for dtype, limit in (("float32", 1e-5), ("float16", 2e-3), ("bfloat16", 2e-2)):
        line = reference("odd_product", dtype, tmp_path)
        assert float(line.split("off by ")[1].split()[0]) < limit
        values = pickle.loads((tmp_path / f"odd_product-{dtype}.pickle").read_bytes())
        assert all(array.dtype == dtype for arrays in values.values() for array in arrays)


def test_the_largest_candidate_of_every_case_comes_before_the_second_of_any(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    cases = ("odd_product", "upsampling")
    for case in cases:
        reference(case, "float32", tmp_path)
    examine("onnxruntime", "cpu", tmp_path, cases, ("float32",), 2)
    lines = [line for line in capsys.readouterr().out.splitlines() if "right" in line]
    assert [line.split()[1] for line in lines] == [*cases, *cases]
    sizes = [line[line.index("[") :].count(",") for line in lines]
    assert sizes[0] > sizes[2] and sizes[1] > sizes[3]


def test_every_backend_of_a_device_is_examined() -> None:
    assert {"tvm-cuda", "cublas", "cudnn", "cutlass", "tensorrt", "onnxruntime-cuda"} <= set(of_device("cuda"))
    assert "tvm" in of_device("cpu") and "tvm" not in of_device("cuda")
