"""A session on a borrowed GPU, in one command: `python -m benchmarks.gpu_session --minutes 28 --out "$OUT"`.

It runs the agenda (`benchmarks.gpu.agenda`), each task in a process of its own with a limit, decides by what they find,
and keeps one archive of all evidence in OUT that is whole at any moment (`benchmarks.gpu.evidence`). A call may end
before the session does (`--call-minutes`): the work goes on in the background where the machine allows it, and the same
command again follows it, or continues where it stopped. `--rehearse` is the same on this machine's processor, with
small networks.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.gpu.agenda import Settings, Task, agenda, command_of, settings, summary
from benchmarks.gpu.evidence import NAME, archive
from collage.files import replacing
from collage.measure.helper import end_with

#: Seconds between two archives, and of the session that are left for the last one.
_INTERVAL_S = 10.0
_RESERVE_S = 15.0
_POLL_S = 0.2
#: A process that hangs in the driver may not end when it is killed.
_LET_GO_S = 5.0
_NO_TIME = "no time was left"
#: What the device did once in a second, for the whole session.
_WATCHED = ("timestamp", "clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "utilization.gpu")
_WATCH_MS = 1000


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
        (self.state / "over").unlink(missing_ok=True)
        with _device_watched(self.state / "device.csv"):
            for task in self.tasks:
                if self.results.get(task.name, {}).get("result", _NO_TIME) != _NO_TIME:
                    continue
                left = self.end - _RESERVE_S - time.time()
                if left < task.least_s:
                    self.note(task, _NO_TIME, 0.0)
                    continue
                decided = settings(self.state)
                begin = time.time()
                result = self._take(task, min(task.most_s, left), decided)
                self.note(task, result, time.time() - begin)
        (self.state / "over").touch()
        self.keep()

    def note(self, task: Task, result: str, seconds: float) -> None:
        """Write down what became of a task."""
        self.results[task.name] = {"result": result, "seconds": round(seconds, 1)}
        with replacing(self.state / "tasks.json") as partial:
            partial.write_text(json.dumps(self.results, indent=1))
        print(f"{task.name}: {result}, {seconds:.0f} s", flush=True)
        self.keep()

    def keep(self) -> None:
        """Write summary and archive anew; what goes wrong with either is said, and nothing more."""
        for write in (self._write_summary, lambda: archive(self.state, self.state / NAME)):
            try:
                write()
            except Exception:
                traceback.print_exc()
        self._archived = time.monotonic()

    def _write_summary(self) -> None:
        with replacing(self.state / "summary.md") as partial:
            partial.write_text(summary(self.state, self.tasks))

    def _take(self, task: Task, limit_s: float, decided: Settings) -> str:
        """Run one task; how it ended."""
        command = command_of(task, self.state, decided)
        environment = {**os.environ, **environment_of(self.state), **decided.environment}
        end = time.monotonic() + limit_s
        with (self.state / "log" / f"{task.name}.log").open("ab") as log:
            print(f"{task.name}: up to {limit_s:.0f} s", flush=True)
            process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
                # Two sessions at once would work on the same files, and on the same device.
                preexec_fn=functools.partial(end_with, os.getpid()),
            )
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
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_LET_GO_S)


def environment_of(state: Path) -> Mapping[str, str]:
    """Of every task: caches in the state's folder, so that they are in the archive; libraries of NVIDIA's wheels where
    the system's loader finds them, which it has to before TVM is imported.
    """
    spec = find_spec("nvidia")
    roots = (spec.submodule_search_locations or ()) if spec else ()
    wheels = sorted(path for root in roots for path in Path(root).glob("*/lib"))
    places = [*map(str, wheels), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    found = {"LD_LIBRARY_PATH": os.pathsep.join(places)} if places else {}
    return {"XDG_CACHE_HOME": str(state / "cache"), "PYTHONUNBUFFERED": "1", **found}


@contextmanager
def _device_watched(file: Path) -> Iterator[None]:
    """Clocks, power and the reasons why clocks are low, in a file; nothing without NVIDIA's tool."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        yield
        return
    query = f"--query-gpu={','.join(_WATCHED)},clocks_event_reasons.active"
    with file.open("ab") as stream:
        watching = functools.partial(end_with, os.getpid())
        command = [tool, query, "--format=csv,nounits", f"--loop-ms={_WATCH_MS}"]
        process = subprocess.Popen(command, stdout=stream, stderr=stream, preexec_fn=watching)
        try:
            yield
        finally:
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LET_GO_S)


def follow(state: Path, out: Path | None, until: float, interval_s: float = _INTERVAL_S) -> bool:
    """Print what the session says and copy its archive to `out`, until nothing works on it any more (True) or the time
    is over (False).
    """
    log, said, copied = state / "session.log", 0, 0.0
    while True:
        ended = not running(state)
        if log.exists():
            with log.open("rb") as stream:
                stream.seek(said)
                text = stream.read()
            said += len(text)
            sys.stdout.write(text.decode(errors="replace"))
            sys.stdout.flush()
        late = time.time() > until
        if ended or late or time.monotonic() > copied + interval_s:
            copy(state, out)
            copied = time.monotonic()
        if ended or late:
            return ended
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
    except (OSError, ValueError):
        return False
    with suppress(OSError):
        os.waitpid(number, os.WNOHANG)
    try:
        command = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"--work" in command and os.fsencode(state) in command


def begin(state: Path, minutes: float, options: Sequence[str], kernels: Path) -> None:
    """Start a process that works on the session, in the background."""
    if kernels.is_dir():
        shutil.copytree(kernels, state / "cache" / "collage" / "cutlass", dirs_exist_ok=True)
    work = [sys.executable, "-m", "benchmarks.gpu_session", "--work", "--state", str(state)]
    work += ["--minutes", str(minutes), *options]
    with (state / "session.log").open("ab") as log:
        process = subprocess.Popen(work, stdout=log, stderr=log, start_new_session=True)
    (state / "pid").write_text(str(process.pid))


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
    parser.add_argument("--state", type=Path, help="folder of everything; one in /tmp when left out")
    parser.add_argument("--out", type=Path, help="folder of the archive and the summary")
    parser.add_argument("--kernels", type=Path, default=Path("build/gpu/cutlass"), help="CUTLASS's, from elsewhere")
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help="only these of the agenda, for a shorter session")
    parser.add_argument("--rehearse", action="store_true", help="on the processor, with small networks")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    tasks = {task.name: task for task in agenda("cpu" if asked.rehearse else "cuda", asked.rehearse)}
    if unknown := sorted({*(asked.tasks or ())} - {*tasks}):
        parser.error(f"there is no task {', '.join(unknown)}: {', '.join(tasks)}")
    chosen = [task for name, task in tasks.items() if not asked.tasks or name in asked.tasks]
    state = (asked.state or Path("/tmp/collage-rehearsal" if asked.rehearse else "/tmp/collage-session")).resolve()
    until = time.time() + 60 * asked.call_minutes
    state.mkdir(parents=True, exist_ok=True)
    if asked.work:
        (state / "pid").write_text(str(os.getpid()))
        Session(state, chosen, 60 * asked.minutes).run()
        return
    if not running(state):
        options = [*(["--tasks", *asked.tasks] if asked.tasks else []), *(["--rehearse"] if asked.rehearse else [])]
        begin(state, asked.minutes, options, asked.kernels)
    if not follow(state, asked.out, until):
        print("the session goes on: the same command follows it", flush=True)
    elif (state / "over").exists():
        print("the session is over", flush=True)
    else:
        print("the session broke off: the same command goes on from there", flush=True)
        raise SystemExit(1)


if __name__ == "__main__":
    main()
