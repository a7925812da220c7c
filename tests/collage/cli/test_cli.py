"""The command line on the way that works: tune, run, compile, report, records, backends."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from tests.collage.cli.conftest import COLLAGE, Command, Tuned, dense, tuning_options


def test_tune_writes_model_plan_and_page_and_says_what_runs_where(tuned: Tuned) -> None:
    assert tuned.library.exists() and tuned.page.read_text().startswith("<!doctype html>")
    plan = json.loads(tuned.plan.read_text())
    assert plan["choice"] in {r["name"] for r in plan["confirmation"]["rivals"]}
    for words in ("Ships: ", "How sure: ", "untouched TVM", str(tuned.library), str(tuned.plan)):
        assert words in tuned.out
    assert "\x1b" not in tuned.out + tuned.err


def test_tune_keeps_the_terminal_clean(tuned: Tuned) -> None:
    first_words = ("enumerating", "computing", "measuring", "searching", "running", "confirming", "compiling")
    assert all(line.startswith(first_words) for line in tuned.err.splitlines()), tuned.err


def test_a_second_run_measures_nothing(tuned: Tuned, tmp_path: Path, collage_command: Command) -> None:
    assert "candidates" in tuned.out.split("Measured now:")[1]
    again = collage_command("tune", tuned.model, "-o", tmp_path / "again.so", *tuning_options(tuned.records))
    assert again.status == 0
    assert "Measured now: nothing" in again.out


def test_run_prints_shapes_and_latency_and_writes_what_onnx_runtime_computes(
    tuned: Tuned, tmp_path: Path, collage_command: Command
) -> None:
    x = np.random.default_rng(1).standard_normal((2, 16)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    ran = collage_command(
        *("run", tuned.library, "--input", f"x={tmp_path / 'x.npy'}", "-o", tmp_path / "out.npz", "--repeat", 5)
    )
    assert ran.status == 0
    assert "input   x: float32[2, 16]" in ran.out and "output  y: float32[2, 8]" in ran.out
    assert "the median of 5 runs" in ran.out
    expected = ort.InferenceSession(tuned.model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["y"], expected, rtol=1e-4, atol=1e-5)


def test_random_inputs_depend_on_the_seed_only(tuned: Tuned, collage_command: Command) -> None:
    runs = [collage_command("run", tuned.library, "--random", "--seed", seed).out for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_run_imports_nothing_of_the_compiling_side(tuned: Tuned) -> None:
    code = (
        "import sys; from collage.cli.main import main\n"
        "try: main(['run', sys.argv[1], '--random'])\n"
        "except SystemExit: print(*sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tuned.library)], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    ours = {name for name in loaded if name.split(".")[0] in ("collage", "searchers", "estimators")}
    allowed = (
        "collage.runtime",
        "collage.cli",
        "collage.errors",
        "collage.interrupt",
        "collage.annotations",
        "collage.runtime.tensor_spec",
        "collage.without_torch",
    )
    assert {name for name in ours if name != "collage" and not name.startswith(allowed)} == set()
    assert not loaded & {"onnx", "sqlalchemy", "joblib", "sklearn", "torch", "xgboost"}
    assert "output  y: float32[2, 8]" in done.stdout


def test_a_tune_begins_without_libraries_that_take_seconds_to_import() -> None:
    code = (
        "import sys; from collage.without_torch import import_tvm_without_torch; import_tvm_without_torch()\n"
        "import collage.api.partitioner; print(*sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "collage.api.partitioner" in loaded
    assert not loaded & {"torch", "scipy.stats", "sklearn", "xgboost", "openvino", "onnxruntime"}


def test_compile_from_a_saved_plan_measures_nothing_and_gives_the_same_model(
    tuned: Tuned, tmp_path: Path, collage_command: Command
) -> None:
    before = tuned.records.read_bytes()
    assert collage_command("compile", tuned.model, "--plan", tuned.plan, "-o", tmp_path / "m.so").status == 0
    assert tuned.records.read_bytes() == before
    first, second = (collage_command("run", so, "--random").out for so in (tuned.library, tmp_path / "m.so"))
    assert first == second


def test_report_prints_the_summary_again_and_as_a_page(tuned: Tuned, tmp_path: Path, collage_command: Command) -> None:
    printed = collage_command("report", tuned.plan, tuned.model)
    assert printed.status == 0 and printed.out.strip() in tuned.out
    details = collage_command("report", tuned.plan, tuned.model, "--details").out
    assert "What runs where" in details and "additive error" in details and "additive error" not in printed.out
    assert collage_command("report", tuned.plan, tuned.model, "--html", tmp_path / "p.html").status == 0
    assert (tmp_path / "p.html").read_text() == tuned.page.read_text()


def test_dynamic_dimensions_are_bound_by_shape(tmp_path: Path, collage_command: Command) -> None:
    model, options = dense(tmp_path / "dynamic.onnx", rows="N"), tuning_options(tmp_path / "r.db")
    unbound = collage_command("tune", model, "-o", tmp_path / "m.so", *options)
    assert unbound.status == 2 and "--shape x=N,16" in unbound.err
    bound = collage_command("tune", model, "-o", tmp_path / "m.so", "--shape", "x=3,16", "--no-confirm", *options)
    assert bound.status == 0 and "unconfirmed" in bound.out
    assert "input   x: float32[3, 16]" in collage_command("run", tmp_path / "m.so", "--random").out


def test_records_are_counted_listed_exported_and_imported(
    tuned: Tuned, tmp_path: Path, collage_command: Command
) -> None:
    records, other, log = tuned.records, tmp_path / "other.db", tmp_path / "bench.jsonl.gz"
    count = int(collage_command("records", "stats", "--records", records).out.split(" records")[0].split()[-1])
    assert len(collage_command("records", "list", "--records", records).out.splitlines()) == count > 3
    listed = collage_command("records", "list", "--records", records, "--kind", "candidate", "--backend", "onnxruntime")
    assert 0 < len(listed.out.splitlines()) < count
    assert f"Wrote {count} observations" in collage_command("records", "export", log, "--records", records).out
    first, second = (collage_command("records", "import", log, "--records", other).out for _ in range(2))
    assert f"{count} added" in first and f"{count} known already" in second
    piped = collage_command("records", "export", "-", "--records", other)
    assert len(piped.out.splitlines()) == count + 1 and json.loads(piped.out.splitlines()[0])["records"] == count


def test_backends_says_what_is_available_and_what_is_missing(
    collage_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "collage.runtime.engine.find_spec", lambda name: None if name == "openvino" else find_spec(name)
    )
    printed = collage_command("backends")
    rows = {line.split()[0]: line for line in printed.out.splitlines() if line.strip()}
    assert printed.status == 0
    assert "yes" in rows["onnxruntime"] and ort.__version__ in rows["onnxruntime"]
    assert "openvino is not installed: `pip install collage-tvm[openvino]`" in " ".join(printed.out.split())


def test_version_and_help() -> None:
    assert subprocess.run([*COLLAGE, "--version"], capture_output=True, text=True).stdout.startswith("collage 0.")
    shown = subprocess.run([*COLLAGE, "--help"], capture_output=True, text=True).stdout
    assert all(name in shown for name in ("tune", "compile", "run", "report", "records", "backends"))
