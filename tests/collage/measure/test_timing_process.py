"""How the timing process comes up and ends: without PyTorch, at nobody's expense, and with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from collage.compile.build import Blob
from collage.measure.artifact import Artifact
from collage.measure.builder import run_all
from collage.measure.job import Job
from collage.measure.protocol import Protocol
from collage.measure.runner import Runner, kept_processes

#: What an engine does when it is asked for a function, in the timing process.
_ENGINE = "test_timing_process:create"


def create(blob: bytes, options: Mapping[str, Any]) -> Callable[..., None]:
    """An engine that says whether PyTorch was imported, or writes its process's number down and hangs."""
    if "hang" in options:
        Path(options["hang"]).write_text(str(os.getpid()))
        time.sleep(600)
    raise ValueError(f"torch is {'there' if 'torch' in sys.modules else 'not there'}")


def job(folder: Path, options: Mapping[str, Any]) -> Job:
    path = folder / "blob"
    path.write_bytes(b"x")
    return Job((Artifact("", blobs=(Blob("f", str(path), _ENGINE, options),)),), (), (), Protocol(), 1)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timing process finds the engine."""
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_processes_that_time_and_compile_do_not_import_pytorch(tmp_path: Path) -> None:
    with Runner(1) as runner:
        (measured,) = runner.measure(job(tmp_path, {}))
    assert "torch is not there" in measured.reason
    imported = "(__import__('tvm'), 'torch' in __import__('sys').modules)[1]"
    assert run_all(eval, [imported], 2, 60.0) == [False]


def test_a_slow_start_is_not_the_first_rivals_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the device's clock has to be compiled."""
    (tmp_path / "sitecustomize.py").write_text("import time; time.sleep(3.5)")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ['PYTHONPATH']}")
    with Runner(1, timeout_s=3.0) as runner:
        (measured,) = runner.measure(job(tmp_path, {}))
    assert "hangs" not in measured.reason and "torch is" in measured.reason


def test_a_process_that_was_left_is_taken_over_by_a_runner_of_as_many_threads() -> None:
    with kept_processes():
        with Runner(1) as first, Runner(1) as second:
            number = first.start().number
            first.leave()
            second.take_over()
            assert second.start().number == number and first.start().number != number
            second.leave()
        with Runner(2) as other:
            other.take_over()
            assert other.start().number != number
        assert _runs(number)
    assert not _runs(number)


def test_nothing_is_left_where_nobody_would_take_it() -> None:
    runner = Runner(1)
    number = runner.start().number
    runner.leave()
    assert not _runs(number)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has ended")
def test_a_rival_that_hangs_ends_when_the_tuning_process_is_killed(tmp_path: Path) -> None:
    number = tmp_path / "pid"
    tuning = (
        "import pathlib, sys; import test_timing_process as t; from collage.measure.runner import Runner\n"
        "Runner(1, 600.0).measure(t.job(pathlib.Path(sys.argv[1]), {'hang': sys.argv[2]}))"
    )
    process = subprocess.Popen([sys.executable, "-c", tuning, str(tmp_path), str(number)])
    try:
        _until(lambda: number.exists() and bool(number.read_text()), 120)
        assert _runs(int(number.read_text()))
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    _until(lambda: not _runs(int(number.read_text())), 20)


def _runs(number: int) -> bool:
    """Whether there is such a process, other than one that waits to be collected."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _until(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
