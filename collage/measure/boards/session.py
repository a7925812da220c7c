"""Session with a board: the tracker lends the board for one job, and gets it back after it."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import rpc
from tvm.runtime.vm import VirtualMachine

from collage.arrays import read_array
from collage.errors import last_line
from collage.measure.artifact import Artifact
from collage.measure.boards.messages import Setup
from collage.measure.boards.tracker import lend
from collage.measure.protocol import Protocol

#: Seconds between two attempts to reach a board.
_AGAIN_S = 0.5
#: A function that every RPC server has, and its argument.
_PRESENT = ("tvm.rpc.server.workpath", "")


class BoardLost(Exception):
    """The board cannot be reached, or not any more."""


@contextmanager
def session_of(setup: Setup, artifacts: int = 1) -> Iterator[Any]:
    """A session of TVM's RPC, for so many artifacts. It ends when nothing refers to it and to its objects any more.

    Raises
    ------
    BoardLost
        No board is free, or none answers, in the time that the setup gives.
    """
    try:
        yield _connect(setup, setup.session_s(artifacts))
    finally:
        gc.collect()


def _connect(setup: Setup, session_s: int) -> Any:
    until = time.monotonic() + setup.patience_s
    while True:
        try:
            host, port, key = lend(setup.address, max(_AGAIN_S, until - time.monotonic()))
            return rpc.connect(host, port, key, session_s)
        except Exception as error:  # of the socket, of JSON, of TVM: whatever it is, there is no board yet
            if time.monotonic() >= until:
                raise BoardLost(f"no board at {setup.address} for {setup.patience_s:g} s: {last_line(error)}") from None
        time.sleep(_AGAIN_S)


def require_present(session: Any, error: BaseException) -> None:
    """Find out whether the board is there still after an error.

    Raises
    ------
    BoardLost
        It is not.
    """
    name, argument = _PRESENT
    try:
        session.get_function(name)(argument)
    except Exception:  # TVM's RPC raises what it likes where the other side has gone
        raise BoardLost(f"the board was lost: {last_line(error)}") from None


class RemoteArtifact:
    """An artifact on a board: uploaded, loaded, fed.

    Parameters
    ----------
    session
        With the board.
    artifact
        Its library, compiled for the board, and its weights.
    inputs
        Arrays.
    name
        Of the library in the session's folder, without ending.
    protocol
        How it is timed.

    Raises
    ------
    Exception
        It cannot be loaded there, or the board is lost.
    """

    def __init__(
        self, session: Any, artifact: Artifact, inputs: Sequence[np.ndarray], name: str, protocol: Protocol
    ) -> None:
        library = name + Path(artifact.library).suffix
        session.upload(artifact.library, library)
        device = session.cpu(0)
        self._vm = VirtualMachine(session.load_module(library), device)
        arrays = [*inputs, *map(read_array, artifact.weights)]
        self._vm.set_input("main", *(tvm.runtime.tensor(np.ascontiguousarray(a), device) for a in arrays))
        evicted = protocol.evict_bytes if protocol.weights == "cold" else 0
        self._timer = self._vm.module.time_evaluator("invoke_stateful", device, 1, 1, cache_flush_bytes=evicted)

    def run(self) -> list[Any]:
        """The outputs, as arrays."""
        self._vm.invoke_stateful("main")
        found = self._vm.get_outputs("main")
        return [tensor.numpy() for tensor in (found if isinstance(found, tuple) else [found])]

    def time_once(self, protocol: Protocol, threads: int) -> float:
        """Seconds of one call of `main`."""
        return float(self._timer("main").results[0])
