"""A tracker of TVM's RPC and a board, each a process on this host, which can be killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

_TRACKER = """
import asyncio, socket, sys
from tvm.rpc.tracker import _tracker_server
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", int(sys.argv[1])))
listener.listen(16)
_tracker_server(listener, "")
"""
#: As docs/SCALE.md says to start it: the process ends with what serves, so that a supervisor starts it again.
_SERVER = """
import sys
from tvm.rpc.server import PopenRPCServerState
tracker = "127.0.0.1", int(sys.argv[1])
PopenRPCServerState("127.0.0.1", 9200, 9900, tracker_addr=tracker, key=sys.argv[2]).thread.join()
"""


class RpcBoards:
    """A tracker, and boards of one key.

    Parameters
    ----------
    folder
        For what processes print.
    """

    key = "board"

    def __init__(self, folder: Path, boards: int = 1) -> None:
        self.folder = folder
        self.port = free_port()
        self.boards: list[subprocess.Popen[bytes]] = []
        self.tracker = self._run(_TRACKER, str(self.port))
        self._wait_for_tracker()  # a server that comes too early waits for five seconds
        for _ in range(boards):
            self.add()
        self._wait(boards)

    @property
    def address(self) -> str:
        return f"rpc://127.0.0.1:{self.port}/{self.key}"

    def add(self) -> None:
        """One more board."""
        self.boards.append(self._run(_SERVER, str(self.port), self.key))

    def kill(self, number: int = 0) -> None:
        """End a board's server, and what it serves."""
        os.killpg(self.boards[number].pid, signal.SIGKILL)
        self.boards.pop(number).wait()

    def close(self) -> None:
        for process in (*self.boards, self.tracker):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _wait_for_tracker(self) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise TimeoutError("the tracker does not come up")

    def _wait(self, boards: int) -> None:
        """Until the tracker knows so many boards."""
        from tvm.rpc import TrackerSession

        deadline = time.monotonic() + 120
        tracker = TrackerSession(("127.0.0.1", self.port))
        while len(tracker.summary()["server_info"]) < boards and time.monotonic() < deadline:
            time.sleep(0.05)
        tracker.close()

    def _run(self, code: str, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", code, *arguments],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=environment,
                start_new_session=True,
            )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
