"""Tables of the suite, of small networks and of times to a plan say what was measured, and go on where they ended."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import small_networks, time_to_plan
from benchmarks.referee import suite, tuning
from benchmarks.referee.intervals import Interval
from benchmarks.referee.process import Entry
from benchmarks.referee.race import Repetition, Terms
from benchmarks.referee.tuning import Checkout, Tuned, TuningError, contest, ships, tune
from benchmarks.workloads import build
from collage.cli import progress_bar

PLAN = {
    "choice": "collage",
    "partitions": [
        {"backend": "tvm", "nodes": [0, 1]},
        {"backend": "onednn", "nodes": [2], "composites": [["conv", [2]]]},
        {"backend": "tvm", "nodes": [3]},
        {"backend": "host", "nodes": [4]},
    ],
}


def raced(**latencies: Sequence[float]) -> Repetition:
    """One repetition of these medians of rounds."""
    medians = {name: list(found) for name, found in latencies.items()}
    samples = {name: [[x] for x in found] for name, found in medians.items()}
    return Repetition(0, "", medians, samples, dict.fromkeys(medians, 0.0))


def result(network: str, repetition: int, ours: float, seconds: float = 10.0) -> dict[str, Any]:
    """What the suite writes of a network whose best rival takes a second."""
    noise = [1.0, 1.001, 0.999] * 4
    race = raced(openvino=noise, collage=[ours * x for x in noise])
    return {
        "network": network,
        "repetition": repetition,
        "commit": "abc",
        "machine": {"model": "CPU", "cores": 2},
        "versions": {"openvino": "1", "numpy": "2"},
        "tune": {
            "seconds": seconds,
            "ships": {"tvm": 2},
            "choice": "collage",
            "options": ["--effort", "quick", "--seed", "1"],
        },
        "repetitions": [asdict(race)],
    }


def test_what_ships_leaves_out_the_host() -> None:
    assert ships(PLAN) == {"tvm": 2, "onednn": 1}
    assert ships({"choice": "untouched"}) == {}


def test_the_suites_table_pools_repetitions_and_counts_losses() -> None:
    results = [
        result("resnet50", 1, 1.0, 90.0),
        result("resnet50", 2, 1.0, 110.0),
        result("tiny_inception", 1, 1.25),
        result("bert_base", 1, 0.5),
    ]
    rows = suite.rows_of(results)
    assert [row.network for row in rows] == ["resnet50", "bert_base", "tiny_inception"]
    text = suite.markdown(results)
    assert "| resnet50 | tvm | 90 to 110 s | 1.00 (1.00 to 1.00), openvino | 1.00 |" in text
    assert "Geometric mean 1.170; below 0.98: 1 of 3 (tiny_inception), beyond doubt 1 (tiny_inception)." in text
    assert "Commit abc; CPU, 2 cores; openvino 1; tunes of each network: 2, 1, with --effort quick" in text
    assert max(line.count("|") for line in text.splitlines()) == 6


def test_the_suites_table_says_what_did_not_run() -> None:
    broken = result("resnet50", 2, 1.0)
    for found in ("medians", "samples", "errors"):
        broken["repetitions"][0][found].pop("collage")
    text = suite.markdown([result("resnet50", 1, 1.0), broken])
    assert "did not run" in text and "beyond doubt 1 (resnet50)" in text


def test_the_suite_goes_on_and_prints_its_table_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A network that failed is tuned again, one that has a result is not."""
    asked = []

    def judged(network: str, repetition: int, settings: suite.Settings) -> Any:
        asked.append(network)
        if network == "dcgan":
            raise TuningError("no space")
        found = result(network, repetition, 1.0)
        return suite.rows_of([found])[0].verdict, found

    monkeypatch.setattr(suite, "judge_network", judged)
    folder = ["--folder", str(tmp_path)]
    assert suite.main(["resnet50", "dcgan", *folder]) == 1
    assert asked == ["resnet50", "dcgan"] and "dcgan: no space" in capsys.readouterr().out
    assert suite.main(["resnet50", *folder]) == 0 and suite.main(["--only", "table", *folder]) == 0
    assert asked == ["resnet50", "dcgan"]
    assert suite.main(["resnet50", *folder, "--repetition", "2"]) == 0
    assert asked == ["resnet50", "dcgan", "resnet50"] and "tunes of each network: 2" in capsys.readouterr().out


def test_a_lost_network_is_status_1(tmp_path: Path) -> None:
    (tmp_path / "resnet50.1.json").write_text(json.dumps(result("resnet50", 1, 1.25)))
    assert suite.main(["--only", "table", "--folder", str(tmp_path)]) == 1


def test_an_empty_folder_has_no_table(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        suite.main(["--only", "table", "--folder", str(tmp_path)])
    assert caught.value.code == 2


def test_a_tune_runs_in_the_checkout_and_its_failure_is_told(tmp_path: Path) -> None:
    """The stand-in's `collage` writes a plan, or fails."""
    command = tmp_path / "collage" / "cli" / "main.py"
    command.parent.mkdir(parents=True)
    for package in (tmp_path / "collage", command.parent):
        (package / "__init__.py").touch()
    command.write_text(
        "import json, sys\n"
        "options = dict(zip(sys.argv[3::2], sys.argv[4::2]))\n"
        "if '--fail' in options: sys.exit('no space left')\n"
        f"open(options['--plan'], 'w').write({json.dumps(PLAN)!r})\n"
    )
    checkout = Checkout(tmp_path)
    files = tmp_path / "m.onnx", tmp_path / "m.so", tmp_path / "r.db"
    found = tune(*files, ["--seed", "1"], checkout)
    assert found.seconds > 0 and found.facts["ships"] == {"tvm": 2, "onednn": 1}
    assert found.facts["contest"] == {"disturbed": 0.0, "final": {}}, "this plan was not confirmed"
    final = {"name": "collage", "latency": {"seconds": 0.5}, "ratio": [1.0, 1.0, 1.0], "fresh": True}
    lost = {"name": "x alone", "latency": {"seconds": 0.9}, "fresh": False}
    told = contest({"confirmation": {"disturbed": 0.25, "rivals": [final, lost]}})
    assert told == {"disturbed": 0.25, "final": {"collage": {"seconds": 0.5, "ratio": [1.0, 1.0, 1.0]}}}
    with pytest.raises(TuningError, match=r"tuning m.onnx ended with status 1: no space left"):
        tune(*files, ["--fail", "1"], checkout)


def test_a_checkout_registers_its_plug_ins_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    monkeypatch.setattr(tuning.subprocess, "run", lambda command, **options: ran.append(options["cwd"]))
    Checkout(tmp_path).register()
    (tmp_path / "collage.egg-info").mkdir()
    Checkout(tmp_path).register()
    assert ran == [tmp_path]


def test_placements_are_the_same_or_not() -> None:
    moved = {**PLAN, "partitions": [{**PLAN["partitions"][0], "backend": "openvino"}, *PLAN["partitions"][1:]]}  # type: ignore[index,dict-item]
    same = {**PLAN, "choice": "tvm alone", "notes": ["another"]}
    assert small_networks.placement_of(PLAN) == small_networks.placement_of(same)
    assert small_networks.placement_of(PLAN) != small_networks.placement_of(moved)
    assert small_networks.placement_of({"choice": "untouched"}) != small_networks.placement_of({"choice": "other"})


def test_the_best_is_chosen_by_other_rounds_than_it_is_told_by() -> None:
    """One that is fast in even rounds only is the best, and is not faster than the others."""
    lucky, steady = [0.9, 1.0] * 6, [1.0] * 12
    best, found = small_networks.speedups([raced(lucky=lucky, steady=steady, slow=[2.0] * 12)])
    assert best == "lucky"
    assert found["steady"].median == 1.0 and found["slow"].median == 0.5


def test_the_best_computes_the_right_numbers() -> None:
    race = raced(wrong=[0.1] * 6, right=[1.0] * 6)
    race.errors["wrong"] = 0.1
    best, found = small_networks.speedups([race])
    assert best == "right" and set(found) == {"right"}
    with pytest.raises(ValueError, match="no contestant ran"):
        small_networks.speedups([Repetition(0, "")])


def test_a_tune_within_3_percent_is_right() -> None:
    near, far = Interval(0.975, 0.9, 1.1), Interval(0.96, 0.9, 1.1)

    def outcome(quiet: Interval | None, busy: Interval | None) -> small_networks.Outcome:
        return small_networks.Outcome("n", 0, True, 1.0, "x", {}, "best", quiet, "other", busy)

    assert outcome(near, far).right and not outcome(near, far).right_as_tuned
    assert not outcome(far, near).right and outcome(far, near).right_as_tuned
    assert not outcome(None, None).right and not outcome(None, None).right_as_tuned


def test_a_busy_neighbour_runs_beside_and_ends() -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Recorded(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", Recorded)
        with small_networks.neighbour(False):
            assert not started
        with small_networks.neighbour(True):
            assert started[0].poll() is None
    assert started[0].poll() is not None


def test_the_table_of_times_has_goals_and_what_a_faster_plan_costs() -> None:
    def found(commit: str, seconds: float) -> dict[str, Any]:
        machine = {"model": "CPU", "cores": 2}
        facts = {"commit": commit, "seconds": seconds, "machine": machine, "options": []}
        return {**facts, "ships": {"tvm": 1}, "choice": "collage"}

    tunes = {"unet": [found("old", 673.0), found("new", 110.0)], "resnet18": [found("old", 50.0), found("new", 20.0)]}
    ratio = {"latency over the first's": {"new": asdict(Interval(1.004, 0.99, 1.02))}}
    text = time_to_plan.markdown(tunes, {"unet": ratio, "resnet18": ratio}, {"unet": 120.0})
    assert "| network | goal, s | old, s | new, s | latency, last over first |" in text
    assert "| unet | 120 | 673 (tvm) | 110 (tvm) | 1.00 (0.99 to 1.02) |" in text
    assert "| resnet18 |  | 50 (tvm)" in text and "2 cores; default settings, empty records" in text
    assert "latency" not in time_to_plan.markdown({"unet": [found("new", 110.0)]}, {}, {})


def test_what_was_timed_is_not_timed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And a plan that comes later than its goal is status 1."""
    asked = []

    def tuned(model: Path, library: Path, *rest: Any) -> Tuned:
        asked.append(model.name)
        return Tuned(library, 1000.0, PLAN)

    monkeypatch.setattr(time_to_plan, "tune", tuned)
    monkeypatch.setattr(time_to_plan, "build", lambda name: build("tiny_mobilenet"))
    monkeypatch.setattr(Checkout, "register", lambda self: None)
    folder = ["--folder", str(tmp_path)]
    assert time_to_plan.main(["unet", *folder]) == 1 and time_to_plan.main(["unet", *folder]) == 1
    assert asked == ["tiny_resnet.onnx", "unet.onnx"]
    assert "| unet | 120 | 1000 (tvm, onednn) |" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        time_to_plan.main(["unet", *folder, "--checkout", str(tmp_path)])


def test_thirty_tunes_go_on_where_the_time_was_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is tuned once and each network judged once, over however many runs."""
    done: list[str] = []
    now = [0.0]

    def tuned(network: str, number: int, folder: Path, options: Sequence[str]) -> None:
        done.append(f"{network} {number}")
        now[0] += 60.0
        small_networks.facts_file(folder, network, number).write_text('{"busy": false, "seconds": 60.0}')
        (folder / f"{network}.{number}.plan.json").write_text(json.dumps(PLAN))
        (folder / f"{network}.single").mkdir(exist_ok=True)

    def race(model: Path, entries: Sequence[Entry], terms: Terms) -> list[Repetition]:
        done.append(f"{model.stem} raced")
        found = raced(**{entry.name: [1.0] * 6 for entry in entries})
        found.errors["openvino"] = float("inf")
        return [found]

    monkeypatch.setattr(small_networks, "tune_once", tuned)
    monkeypatch.setattr(small_networks, "race", race)
    monkeypatch.setattr(small_networks, "build", lambda name: build("tiny_mobilenet"))
    monkeypatch.setattr(small_networks, "time", SimpleNamespace(monotonic=lambda: now[0]))
    command = ["bert_tiny", "tiny_inception", "--tunes", "2", "--folder", str(tmp_path), "--rivals", "openvino"]
    statuses = [small_networks.main([*command, "--minutes", "1.5"]) for _ in range(3)]
    assert statuses == [3, 3, 0]
    # Raced on a quiet machine, and beside a busy neighbour.
    each = [[f"{name} 0", f"{name} 1", *[f"{name} raced"] * 2] for name in ("bert_tiny", "tiny_inception")]
    assert done == [work for network in each for work in network]
    assert json.loads((tmp_path / "small.json").read_text())["right"] == 4


def test_the_stages_of_a_tune_are_read_from_its_progress(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress_bar, "time", SimpleNamespace(monotonic=lambda: now[0]))
        told = progress_bar.ProgressBar(sys.stderr)
        for stage, total, done, seconds in (
            ("measuring transitions", 15, 15, 47),
            ("measuring", 70, 70, 20),
            ("enumerating candidates", None, 0, 0.1),
            ("measuring", 655, 600, 145),
            ("running plans end to end", None, 0, 3725),
        ):
            told.stage(stage, total)
            told.step("conv2d in 3 s", done)
            told.note("no measuring in 9 s")
            now[0] += seconds
        told.stage("compiling")
        told.close()
    written = capsys.readouterr().err
    assert "measuring: 600 of 655 in 2 min 25 s" in written
    found = {"measuring transitions": 47, "measuring": 165, "running plans end to end": 3720}
    assert tuning.stages_of(written) == found
    assert Tuned(Path("m.so"), 1.0, PLAN, found).facts["stages"] == found
