"""Runs on one host take turns at timing, and one that is killed leaves no lock behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from collage.measure.host_lock import timing
from collage.progress import Reporter

HOLDER = """
import sys, time
from collage.measure.host_lock import timing
from collage.progress import Reporter
with timing(Reporter(), [sys.argv[1]]):
    print("held", flush=True)
    sys.stdin.read()
"""


class Listener(Reporter):
    """Keeps what it is told, and ends the process that is waited for."""

    def __init__(self, process: subprocess.Popen[str] | None = None) -> None:
        self.process = process
        self.said: list[str] = []

    def step(self, label: str, count: int = 1) -> None:
        self.said.append(label)
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)

    def note(self, line: str) -> None:
        self.said.append(line)


def hold(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_another_process_is_waited_for_and_its_death_frees_the_lock(tmp_path: Path) -> None:
    with hold(tmp_path) as process:
        listener = Listener(process)
        with timing(listener, [str(tmp_path)]):
            assert process.wait() == -signal.SIGKILL
        assert listener.said == ["waiting for another tuning run on this host"]


def test_it_may_be_entered_again_and_is_free_afterwards(tmp_path: Path) -> None:
    listener = Listener()
    with timing(listener, [str(tmp_path)]), timing(listener, [str(tmp_path)]):
        pass
    with hold(tmp_path) as process:
        process.kill()
    assert not listener.said


def test_every_user_may_open_the_file_whatever_the_umask(tmp_path: Path) -> None:
    umask = os.umask(0o077)
    try:
        with timing(Reporter(), [str(tmp_path / "missing"), str(tmp_path)]):
            pass
    finally:
        os.umask(umask)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o666


def test_without_a_folder_there_is_no_lock_and_the_user_is_told(tmp_path: Path) -> None:
    listener = Listener()
    with timing(listener, [str(tmp_path / "missing")]):
        pass
    assert len(listener.said) == 1 and "without the lock" in listener.said[0]
