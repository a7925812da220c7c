"""A wire between two sockets, which a test can cut."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress


class Wire:
    """Listens on a port of its own, and passes on whatever comes to another one.

    Attributes
    ----------
    address
        As Dask names it.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._server.getsockname()[1]}"
        self._lock, self._ends = threading.Lock(), set[socket.socket]()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End all connections at once, in the middle of whatever they carry."""
        with self._lock:
            ends = list(self._ends)
        for end in ends:
            _reset(end)

    def close(self) -> None:
        self._server.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                near, _ = self._server.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._port), timeout=10)
                except OSError:
                    _reset(near)
                    continue
                far.settimeout(None)
                with self._lock:
                    self._ends |= {near, far}
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while content := source.recv(1 << 16):
                target.sendall(content)
        for end in (source, target):
            _reset(end)
        with self._lock:
            self._ends -= {source, target}


def _reset(end: socket.socket) -> None:
    """Close a connection without a farewell, also for a thread that waits for it."""
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
