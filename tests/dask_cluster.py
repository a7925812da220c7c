"""A Dask cluster of the tests' own: a scheduler and workers, each a process on this host, which can be killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class DaskCluster:
    """Workers of two threads that time and build.

    Parameters
    ----------
    folder
        For what processes print, and their files.
    """

    def __init__(self, folder: Path, workers: int = 3) -> None:
        self.folder = folder
        self.port = _free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.scheduler = self._start_scheduler()
        self.workers: list[subprocess.Popen[bytes]] = []
        for _ in range(workers):
            self.add()

    def add(self, *options: str) -> subprocess.Popen[bytes]:
        """One more worker."""
        command = ["worker", self.address, "--no-nanny", "--nthreads", "2", "--no-dashboard", "--death-timeout", "60"]
        if "--resources" not in options:
            options = (*options, "--resources", "timing=1")
        worker = self._run(*command, "--local-directory", str(self.folder), *options)
        self.workers.append(worker)
        return worker

    def kill(self, number: int = 0, with_signal: signal.Signals = signal.SIGKILL) -> None:
        """End a worker, or stop it."""
        worker = self.workers[number]
        worker.send_signal(with_signal)
        if with_signal == signal.SIGKILL:
            self.workers.pop(number).wait()

    def kill_scheduler(self, again: bool = True) -> None:
        """End the scheduler; workers end with it. With `again`, start all of them as a supervisor would."""
        self.scheduler.kill()
        self.scheduler.wait()
        count = len(self.workers)
        for worker in self.workers:
            worker.kill()
            worker.wait()
        self.workers.clear()
        if again:
            self.scheduler = self._start_scheduler()
            for _ in range(count):
                self.add()

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()

    def _start_scheduler(self) -> subprocess.Popen[bytes]:
        scheduler = self._run("scheduler", "--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return scheduler
            time.sleep(0.05)
        raise TimeoutError("the scheduler does not come up")

    def _run(self, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "distributed.cli.dask_" + arguments[0], *arguments[1:]],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=environment,
            )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
