"""A Dask cluster of the tests' own: a scheduler and workers, each a process on this host, which can be killed."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: What a deployment gives `dask scheduler` and `dask worker`, too: libraries are there before it is.
PRELOAD = ("--preload", "collage.measure.fleet.remote")


class DaskCluster:
    """Workers that time and build.

    Parameters
    ----------
    folder
        For what processes print, and their files.
    threads
        Of each worker.
    supervised
        Start again whatever ends, as `restart: always` does.
    """

    def __init__(self, folder: Path, workers: int = 3, supervised: bool = False, threads: int = 2) -> None:
        self.folder, self.threads = folder, threads
        self.port = free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.scheduler = self._start_scheduler()
        self.workers: list[subprocess.Popen[bytes]] = []
        for _ in range(workers):
            self.add()
        self._closing = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise, daemon=True)
        if supervised:
            self._supervisor.start()

    def add(self, *options: str) -> subprocess.Popen[bytes]:
        """One more worker."""
        worker = self._start_worker(*options)
        self.workers.append(worker)
        return worker

    def kill(self, number: int = 0) -> None:
        """End a worker."""
        self.workers[number].kill()
        if not self._supervisor.is_alive():
            self.workers.pop(number).wait()

    def stop(self, number: int, seconds: float) -> None:
        """Have a worker hang for so long."""
        worker = self.workers[number]
        worker.send_signal(signal.SIGSTOP)
        threading.Timer(seconds, worker.send_signal, [signal.SIGCONT]).start()

    def kill_scheduler(self) -> None:
        """End the scheduler; workers end with it."""
        self.scheduler.kill()
        if not self._supervisor.is_alive():
            self.scheduler.wait()

    def close(self) -> None:
        self._closing.set()
        if self._supervisor.is_alive():
            self._supervisor.join()
        for process in (*self.workers, self.scheduler):
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()

    def _supervise(self) -> None:
        while not self._closing.wait(0.1):
            if self.scheduler.poll() is not None:
                self.scheduler = self._start_scheduler(wait=False)
            for number, worker in enumerate(self.workers):
                if worker.poll() is not None:
                    self.workers[number] = self._start_worker()

    def _start_worker(self, *options: str) -> subprocess.Popen[bytes]:
        command = ["worker", self.address, "--no-nanny", "--no-dashboard", "--death-timeout", "60"]
        if "--resources" not in options:
            options = (*options, "--resources", "timing=1")
        command += ["--nthreads", str(self.threads)]
        return self._run(*command, *PRELOAD, "--local-directory", str(self.folder), *options)

    def _start_scheduler(self, wait: bool = True) -> subprocess.Popen[bytes]:
        command = ["scheduler", "--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard", *PRELOAD]
        scheduler = self._run(*command)
        deadline = time.monotonic() + 120
        while wait and time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return scheduler
            time.sleep(0.05)
        if wait:
            raise TimeoutError("the scheduler does not come up")
        return scheduler

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


def free_port() -> int:
    """One that the system gives to nobody: whoever connects while no server listens there could be given it, and then
    no server can.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
