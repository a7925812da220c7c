"""Bad input: each one clear line on standard error, exit status 2, no traceback, nothing lost."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.collage.cli.conftest import COLLAGE, Command, Ran, Tuned, dense, tuning_options


def refused(ran: Ran, *words: str) -> None:
    """One line, status 2, and it says these words."""
    assert ran.status == 2, ran
    (line,) = [line for line in ran.err.splitlines() if not line.startswith(("enumerating", "measuring", "compiling"))]
    assert line.startswith("error: ") and "Traceback" not in ran.err
    for word in words:
        assert word in line, line


@pytest.fixture
def tune(collage_command: Command, tmp_path: Path):
    """`collage tune MODEL` with quick options, and more or other ones."""

    def run(model: Path | str, *more: object) -> Ran:
        return collage_command("tune", model, "-o", tmp_path / "out.so", *tuning_options(tmp_path / "r.db"), *more)

    return run


def test_a_missing_file(tune) -> None:
    refused(tune("nowhere.onnx"), "nowhere.onnx", "no such file")


@pytest.mark.parametrize(
    "content", [b"", b"\x00\xff" * 500, b"not a model\n", "half"], ids=["empty", "noise", "text", "half"]
)
def test_a_corrupt_file(content: bytes | str, tune, tmp_path: Path) -> None:
    bad = tmp_path / "bad.onnx"
    whole = dense(tmp_path / "dense.onnx").read_bytes()
    bad.write_bytes(whole[: len(whole) // 2] if isinstance(content, str) else content)
    refused(tune(bad), "bad.onnx")


def test_a_directory(tune, tmp_path: Path) -> None:
    refused(tune(tmp_path), str(tmp_path), "directory")


def test_an_unsupported_operator_is_named_with_its_node(tune, tmp_path: Path) -> None:
    node = helper.make_node("Frobnicate", ["x"], ["y"], name="the_node", domain="some.where")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph([node], "g", [x], [y])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("some.where", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "m.onnx")
    refused(tune(tmp_path / "m.onnx"), "Frobnicate", "the_node")


def test_inputs_that_are_not_the_networks(tune, tuned: Tuned, tmp_path: Path) -> None:
    refused(tune(tuned.model, "--inputs", "nowhere.npz"), "nowhere.npz", "cannot be read")
    np.savez(tmp_path / "sample.npz", other=np.ones(2, np.float32))
    refused(tune(tuned.model, "--inputs", tmp_path / "sample.npz"), "'other', which is no input")
    ran = tune(tuned.model, "--inputs", tmp_path / "sample.npz", "--batch", "2")
    assert ran.status == 2 and "--inputs" in ran.err and "one list of shapes" in ran.err


@pytest.mark.parametrize(
    ("option", "valid"), [("--backends", "tvm"), ("--searcher", "dijkstra"), ("--estimator", "measured")]
)
def test_an_unknown_name_lists_the_valid_ones(option: str, valid: str, tune, tuned: Tuned) -> None:
    refused(tune(tuned.model, option, "nonsense"), "'nonsense'", "valid names: ", valid)


def test_a_backend_that_is_not_installed(tune, tuned: Tuned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "collage.runtime.engine.find_spec", lambda name: None if name == "openvino" else find_spec(name)
    )
    refused(tune(tuned.model, "--backends", "openvino"), "openvino is not installed", "pip install")


def test_an_operator_that_no_backend_can_run_is_named(tune, tmp_path: Path) -> None:
    model = dense(tmp_path / "double.onnx", dtype=TensorProto.DOUBLE)  # engines compute doubles in another precision
    refused(tune(model), "relax.nn.relu", "collage backends")


@pytest.mark.parametrize("command", ["compile", "report"])
def test_a_plan_for_another_network(command: str, collage_command: Command, tuned: Tuned, tmp_path: Path) -> None:
    other = dense(tmp_path / "other.onnx", features=32)
    arguments = {"compile": [other, "--plan", tuned.plan, "-o", tmp_path / "o.so"], "report": [tuned.plan, other]}
    refused(collage_command(command, *arguments[command]), tuned.plan.name, "for another network")


@pytest.fixture(scope="module")
def searched_plan(tuned: Tuned, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A plan with partitions, whichever contestant is the fastest."""
    plan = tmp_path_factory.mktemp("plan") / "plan.json"
    options = ["--no-confirm", "--plan", str(plan), *tuning_options(tuned.records)]
    subprocess.run([*COLLAGE, "tune", tuned.model, "-o", plan.with_suffix(".so"), *options], check=True)
    return plan.read_text()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"version": 2', '"version": 99', "version 99"),
        ('"format": "collage-plan"', '"format": "x"', "not a plan"),
        ('"backend": "onnxruntime"', '"backend": "nonsense"', "'nonsense'"),
        ('"nodes": [', '"nodes": [9999,', "9999"),
        ('"operators"', '"operations"', "operators"),
    ],
)
def test_a_plan_that_is_not_one(
    old: str, new: str, words: str, searched_plan: str, collage_command: Command, tuned: Tuned, tmp_path: Path
) -> None:
    assert old in searched_plan
    (tmp_path / "bad.json").write_text(searched_plan.replace(old, new, 1))
    refused(collage_command("compile", tuned.model, "--plan", tmp_path / "bad.json", "-o", tmp_path / "o.so"), words)


def test_records_of_another_schema_version_are_left_as_they_are(tune, tuned: Tuned, tmp_path: Path) -> None:
    shutil.copy(tuned.records, tmp_path / "old.db")
    with sqlite3.connect(tmp_path / "old.db") as connection:
        connection.execute("PRAGMA user_version=99")
    before = (tmp_path / "old.db").read_bytes()
    refused(tune(tuned.model, "--records", tmp_path / "old.db"), "old.db", "schema version 99")
    assert (tmp_path / "old.db").read_bytes() == before


def test_a_torn_database_is_left_as_it_is(tune, tuned: Tuned, tmp_path: Path) -> None:
    whole = tuned.records.read_bytes()
    (tmp_path / "torn.db").write_bytes(whole[: len(whole) // 2])
    refused(tune(tuned.model, "--records", tmp_path / "torn.db"), "torn.db", "damaged")
    assert (tmp_path / "torn.db").read_bytes() == whole[: len(whole) // 2]


def test_a_file_that_is_no_database(tune, tuned: Tuned) -> None:
    refused(tune(tuned.model, "--records", tuned.plan), "is not a records database")


def test_a_torn_log_gives_its_whole_lines_and_says_so(collage_command: Command, tuned: Tuned, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    collage_command("records", "export", log, "--records", tuned.records)
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines)[: -len(lines[-1]) // 2])
    ran = collage_command("records", "import", log, "--records", tmp_path / "new.db")
    assert ran.status == 0 and f"{len(lines) - 2} added" in ran.out
    assert ran.err.startswith("warning: ") and "breaks off" in ran.err and len(ran.err.splitlines()) == 1


def test_a_log_of_another_version_imports_nothing(collage_command: Command, tuned: Tuned, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    collage_command("records", "export", log, "--records", tuned.records)
    text = log.read_text()
    written = re.sub(r'"version":\d+', '"version":99', text, count=1)
    assert written != text
    log.write_text(written)
    refused(collage_command("records", "import", log, "--records", tmp_path / "new.db"), "version 99")


def test_records_that_do_not_exist_are_not_made_by_looking(collage_command: Command, tmp_path: Path) -> None:
    refused(collage_command("records", "stats", "--records", tmp_path / "none.db"), "none.db")
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize("option", ["-o", "--plan", "--report"])
@pytest.mark.parametrize(("path", "reason"), [("/proc/x", "cannot be written"), ("/dev/full", "not a regular file")])
def test_outputs_that_cannot_be_written_are_refused_before_anything_is_measured(
    option: str, path: str, reason: str, tune, tuned: Tuned, tmp_path: Path
) -> None:
    refused(tune(tuned.model, option, path), path, reason)
    assert not (tmp_path / "r.db").exists()


def test_a_full_disk_is_one_line_and_leaves_no_half_model(tuned: Tuned, tmp_path: Path) -> None:
    """The disk has room for a few kilobytes when the work begins, and not for the model when it ends."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = 'mount -t tmpfs -o size=32k tmpfs "$0" && "$@"; status=$?; ls -A "$0"; exit $status'
    prefix = ["unshare", "-rm", "sh", "-c", mount, str(disk)]
    if shutil.which("unshare") is None or subprocess.run([*prefix, "true"], capture_output=True).returncode:
        pytest.skip("mounting a small disk needs user namespaces")
    command = [*COLLAGE, "compile", tuned.model, "--plan", tuned.plan, "-o", disk / "m.so"]
    done = subprocess.run([*prefix, *map(str, command)], capture_output=True, text=True)
    refused(Ran(done.returncode, done.stdout, done.stderr), "m.so", "cannot write")
    assert done.stdout == "", "nothing is left on the disk"


def test_a_full_disk_for_records_is_one_line(tune, tuned: Tuned) -> None:
    refused(tune(tuned.model, "--records", "/proc/records.db"), "/proc/records.db")


def test_running_what_is_no_compiled_model(collage_command: Command, tuned: Tuned, tmp_path: Path) -> None:
    refused(collage_command("run", tmp_path / "none.so", "--random"), "no such file")
    refused(collage_command("run", tuned.model, "--random"), "not a model compiled by Collage")
    (tmp_path / "half.so").write_bytes(tuned.library.read_bytes()[:5000])
    refused(collage_command("run", tmp_path / "half.so", "--random"), "half.so")


def test_inputs_that_do_not_fit_the_model(collage_command: Command, tuned: Tuned, tmp_path: Path) -> None:
    np.save(tmp_path / "wide.npy", np.zeros((2, 17), np.float32))
    np.save(tmp_path / "double.npy", np.zeros((2, 16)))
    (tmp_path / "text.npy").write_text("1, 2, 3")

    def run(*options: object) -> Ran:
        return collage_command("run", tuned.library, *options)

    refused(run(), "x: float32[2, 16]", "--random")
    refused(run("--input", "z=a.npy"), "no input z", "x: float32[2, 16]")
    refused(run("--input", f"x={tmp_path / 'none.npy'}"), "none.npy", "No such file")
    refused(run("--input", f"x={tmp_path / 'text.npy'}"), "text.npy", "cannot read input x")
    refused(run("--input", f"x={tmp_path / 'wide.npy'}"), "[2, 17]", "[2, 16]")
    refused(run("--input", f"x={tmp_path / 'double.npy'}"), "float64", "float32")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["frobnicate"], "frobnicate"),
        (["tune", "m.onnx"], "--output"),
        (["tune", "m.onnx", "-o", "m.so", "--threads", "0"], "--threads"),
        (["tune", "m.onnx", "-o", "m.so", "--shape", "x:3"], "x:3"),
        (["tune", "m.onnx", "-o", "m.so", "--shape", "x=3,-1"], "x=3,-1"),
        (["tune", "m.onnx", "-o", "m.so", "--backends", "tvm,tvm"], "named twice"),
        (["tune", "m.onnx", "-o", "m.so", "--backends", "onnxruntime", "--tune-trials", "8"], "--tune-trials"),
        (["run", "m.so", "--input", "x"], "input=file.npy"),
        (["records", "collect"], "--designed"),
        (["records", "collect", "--designed", "1", "--device", "tpu"], "cpu or cuda"),
    ],
)
def test_wrong_usage(arguments: list[str], words: str, collage_command: Command) -> None:
    refused(collage_command(*arguments), words)


def test_verbose_shows_the_traceback(collage_command: Command) -> None:
    ran = collage_command("run", "nowhere.so", "--verbose")
    assert ran.status == 2 and "Traceback" in ran.err and ran.err.splitlines()[-1].startswith("error: ")


def test_a_reader_that_goes_away_is_no_error(tuned: Tuned) -> None:
    command = [*COLLAGE, "records", "list", "--records", str(tuned.records)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.wait(timeout=100)
    assert (process.returncode, errors) == (141, b"")


def test_ctrl_c_says_what_is_kept_and_how_to_go_on(tuned: Tuned, tmp_path: Path) -> None:
    records = tmp_path / "records.db"
    options = ["--threads", "1", "--backends", "onnxruntime,tvm", "--records", str(records)]
    command = [*COLLAGE, "tune", str(tuned.model), "-o", str(tmp_path / "m.so"), *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("measuring"):
            break
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    asked = time.monotonic()
    _, errors = process.communicate(timeout=100)
    assert time.monotonic() - asked < 30, "it stops soon, even on a busy machine"
    assert process.returncode == 130
    assert "the same command goes on" in errors.splitlines()[-1] and str(records) in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "m.so").exists()


def test_a_tracker_of_boards_that_is_not_there(tune, tmp_path: Path) -> None:
    refused(
        tune(dense(tmp_path / "dense.onnx"), "--runner", "rpc://127.0.0.1:9/pi4"),
        "no RPC tracker answers at 127.0.0.1:9",
    )
