"""The session on a borrowed GPU, rehearsed on this processor with small networks, and killed on the way."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from benchmarks.gpu.agenda import agenda
from benchmarks.gpu.evidence import NAME

pytestmark = [pytest.mark.emulation, pytest.mark.slow, pytest.mark.timeout(3000)]

#: Kills, and the seconds that a session may work before each.
_KILLS, _BETWEEN_S = 5, (5.0, 40.0)


def call(state: Path, out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.gpu_session", "--rehearse", "--minutes", "60", "--call-minutes", "60"]
    return subprocess.Popen([*command, "--state", str(state), "--out", str(out)], stdout=subprocess.PIPE, text=True)


def packed(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        streams = {entry.name: archive.extractfile(entry) for entry in archive.getmembers()}
        return {name: stream.read() for name, stream in streams.items() if stream is not None}


def workers(state: Path) -> list[int]:
    """Processes that have to do with a session."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(state) in command and int(folder.name) != os.getpid():
            found.append(int(folder.name))
    return found


def test_a_rehearsal_that_is_killed_goes_on_to_its_end_and_its_archive_is_always_whole(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    state, out = tmp_path / "state", tmp_path / "out"
    draw = random.Random(0)
    for _ in range(_KILLS):
        calling = call(state, out)
        time.sleep(draw.uniform(*_BETWEEN_S))
        while not (state / "pid").exists():
            time.sleep(0.1)
        calling.kill()
        os.kill(int((state / "pid").read_text()), signal.SIGKILL)
        calling.wait()
        until = time.monotonic() + 30
        while workers(state) and time.monotonic() < until:
            time.sleep(0.1)
        assert not workers(state), "what a session had begun ends with it"
        if (state / NAME).exists():
            found = packed(state / NAME)
            done = json.loads((state / "tasks.json").read_text()) if (state / "tasks.json").exists() else {}
            kept = json.loads(found["tasks.json"]) if "tasks.json" in found else {}
            assert len(kept) >= len(done) - 1 and all(f"log/{name}.log" in found for name in kept)
    calling = call(state, out)
    said, _ = calling.communicate()
    assert calling.returncode == 0 and said.endswith("the session is over\n")
    found = packed(out / NAME)
    results = {name: row["result"] for name, row in json.loads(found["tasks.json"]).items()}
    assert results == {task.name: "done" for task in agenda("cpu", quick=True)}
    rows = [json.loads(line) for line in found["state/rows.jsonl"].splitlines()]
    raced = {(row["network"], row["contender"]): row["status"] for row in rows if row["kind"] == "race"}
    assert all(raced[network, "collage"] == "ok" for network in ("tiny_bert", "tiny_resnet"))
    assert len(raced) == 6 and set(raced.values()) <= {"ok", "skipped"}, "a peer may be late on a busy machine"
    assert found["state/records.db"].startswith(b"SQLite format 3")
    assert "off by" in found["log/numerics-half.log"].decode()
