"""Half an hour on a borrowed GPU, in one command: `python -m benchmarks.gpu_session --minutes 28 --out "$OUT"`.

It runs the agenda (`benchmarks.gpu.agenda`), each task in a process of its own with a limit, decides by what they find,
and keeps one archive of all evidence in OUT that is whole at any moment (`benchmarks.gpu.evidence`). A call may end
before the session does (`--call-minutes`): the work goes on in the background where the machine allows it, and the same
command again follows it, or continues where it stopped. `--rehearse` is the same on this machine's processor, with
small networks.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.gpu.agenda import Settings, Task, agenda, command_of, settings, summary
from benchmarks.gpu.evidence import NAME, archive
from collage.files import replacing

#: Seconds between two archives, and of the session that are left for the last one.
_INTERVAL_S = 10.0
_RESERVE_S = 15.0
_POLL_S = 0.2


class Session:
    """Runs tasks one after another; all that is known of them is in files, so that another process can go on.

    Parameters
    ----------
    state
        Folder of everything.
    tasks
        The agenda.
    seconds
        Of the session, from its first beginning.
    interval_s
        Seconds between two archives.
    """

    def __init__(self, state: Path, tasks: Sequence[Task], seconds: float, interval_s: float = _INTERVAL_S) -> None:
        self.state = state
        self.tasks = tasks
        self.interval_s = interval_s
        self.results: dict[str, dict[str, Any]] = {}
        (state / "log").mkdir(parents=True, exist_ok=True)
        begun = _read_or_write(state / "begun.json", {"time": time.time()})
        self.end = float(begun["time"]) + seconds
        with suppress(OSError, ValueError):
            self.results = json.loads((state / "tasks.json").read_text())
        self._archived = 0.0

    def run(self) -> None:
        """All tasks that have no result and for which there is time."""
        for task in self.tasks:
            if task.name in self.results:
                continue
            left = self.end - _RESERVE_S - time.time()
            if left < task.least_s:
                self.note(task, "no time was left", 0.0)
                continue
            decided = settings(self.state)
            begin = time.time()
            result = self._take(task, min(task.most_s, left), decided)
            self.note(task, result, time.time() - begin)
        self.keep()

    def note(self, task: Task, result: str, seconds: float) -> None:
        """Write down what became of a task."""
        self.results[task.name] = {"result": result, "seconds": round(seconds, 1)}
        with replacing(self.state / "tasks.json") as partial:
            partial.write_text(json.dumps(self.results, indent=1))
        print(f"{task.name}: {result}, {seconds:.0f} s", flush=True)
        self.keep()

    def keep(self) -> None:
        """Write summary and archive anew."""
        with suppress(OSError):
            with replacing(self.state / "summary.md") as partial:
                partial.write_text(summary(self.state, self.tasks))
            archive(self.state, self.state / NAME)
        self._archived = time.monotonic()

    def _take(self, task: Task, limit_s: float, decided: Settings) -> str:
        """Run one task; how it ended."""
        command = command_of(task, self.state, decided)
        environment = {**os.environ, **environment_of(self.state), **decided.environment}
        end = time.monotonic() + limit_s
        with (self.state / "log" / f"{task.name}.log").open("ab") as log:
            print(f"{task.name}: up to {limit_s:.0f} s", flush=True)
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
            try:
                while process.poll() is None:
                    if time.monotonic() > end:
                        return "ended at its limit"
                    if time.monotonic() > self._archived + self.interval_s:
                        self.keep()
                    time.sleep(_POLL_S)
                return "done" if process.returncode == 0 else f"ended with status {process.returncode}"
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def environment_of(state: Path) -> Mapping[str, str]:
    """Of every task: caches in the state's folder, so that they are in the archive."""
    return {"XDG_CACHE_HOME": str(state / "cache"), "PYTHONUNBUFFERED": "1"}


def follow(state: Path, out: Path | None, until: float, interval_s: float = _INTERVAL_S) -> bool:
    """Print what the session says and copy its archive to `out`, until it is over (True) or the time is (False)."""
    log, said, copied = state / "session.log", 0, 0.0
    while True:
        over = not running(state)
        if log.exists():
            with log.open("rb") as stream:
                stream.seek(said)
                text = stream.read()
            said += len(text)
            sys.stdout.write(text.decode(errors="replace"))
            sys.stdout.flush()
        late = time.time() > until
        if over or late or time.monotonic() > copied + interval_s:
            copy(state, out)
            copied = time.monotonic()
        if over or late:
            return over
        time.sleep(_POLL_S)


def copy(state: Path, out: Path | None) -> None:
    """Archive and summary to where they are fetched from."""
    if out is None:
        return
    for name in (NAME, "summary.md"):
        with suppress(OSError):
            data = (state / name).read_bytes()
            with replacing(out / name) as partial:
                partial.write_bytes(data)


def running(state: Path) -> bool:
    """Whether a process works on the session."""
    try:
        number = int((state / "pid").read_text())
        os.waitpid(number, os.WNOHANG)
    except (OSError, ValueError, ChildProcessError):
        pass
    try:
        number = int((state / "pid").read_text())
        return "gpu_session" in Path(f"/proc/{number}/cmdline").read_text(errors="replace")
    except (OSError, ValueError):
        return False


def _read_or_write(path: Path, first: dict[str, Any]) -> dict[str, Any]:
    """What a file holds; written where there is none."""
    with suppress(OSError, ValueError):
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    with replacing(path) as partial:
        partial.write_text(json.dumps(first))
    return first


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=28.0, help="of the whole session")
    parser.add_argument("--call-minutes", type=float, default=9.5, help="after which this call returns")
    parser.add_argument("--state", type=Path, default=Path("/tmp/collage-session"))
    parser.add_argument("--out", type=Path, help="folder of the archive and the summary")
    parser.add_argument("--kernels", type=Path, default=Path("build/gpu/cutlass"), help="CUTLASS's, from elsewhere")
    parser.add_argument("--rehearse", action="store_true", help="on the processor, with small networks")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    device = "cpu" if asked.rehearse else "cuda"
    until = time.time() + 60 * asked.call_minutes
    asked.state.mkdir(parents=True, exist_ok=True)
    if asked.work:
        (asked.state / "pid").write_text(str(os.getpid()))
        Session(asked.state, agenda(device, asked.rehearse), 60 * asked.minutes).run()
        return
    if not running(asked.state):
        if asked.kernels.is_dir():
            shutil.copytree(asked.kernels, asked.state / "cache" / "collage" / "cutlass", dirs_exist_ok=True)
        work = [sys.executable, "-m", "benchmarks.gpu_session", "--work", "--state", str(asked.state)]
        work += ["--minutes", str(asked.minutes), *(["--rehearse"] if asked.rehearse else [])]
        with (asked.state / "session.log").open("ab") as log:
            process = subprocess.Popen(work, stdout=log, stderr=log, start_new_session=True)
        (asked.state / "pid").write_text(str(process.pid))
    over = follow(asked.state, asked.out, until)
    print("the session is over" if over else "the session goes on: the same command follows it", flush=True)


if __name__ == "__main__":
    main()
