"""Requests to the tracker of TVM's RPC: list the boards, and lend one.

TVM's own client (`tvm.rpc.TrackerSession`) waits for answers without a limit, and asks again for a minute if nobody
listens. The messages here are those of the tracker (`tvm.rpc.tracker`): JSON, each framed by its length.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tvm.rpc import base
from tvm.rpc.base import TrackerCode

from collage.errors import CollageError
from collage.measure.boards.address import BoardAddress

#: Seconds in which a tracker answers what it knows.
_ANSWER_S = 10.0
#: Of a request, among those of others.
_PRIORITY = 1


def require_board(address: BoardAddress) -> None:
    """Check that the tracker is there, and knows a board of the key, which others may be using.

    Raises
    ------
    CollageError
        It is not, or knows none.
    """
    try:
        keys = _keys(address)
    except (OSError, ValueError) as error:
        raise CollageError(f"no RPC tracker answers at {address.tracker}: {error}") from error
    if address.key not in keys:
        known = ", ".join(sorted(keys)) or "none at all"
        raise CollageError(
            f"the RPC tracker at {address.tracker} has no board of the key {address.key}; it has {known}"
        )


def lend(address: BoardAddress, seconds: float) -> tuple[str, int, str]:
    """Host and port of a board's server, and the key that it expects for one session; waits while others use it.

    Raises
    ------
    OSError
        The tracker does not answer, or no board is free in so many seconds.
    """
    with _connected(address) as connection:
        base.sendjson(connection, [TrackerCode.REQUEST, address.key, "", _PRIORITY])
        connection.settimeout(seconds)
        try:
            host, port, key = _answer(connection)
        except TimeoutError:
            raise TimeoutError(f"no board of the key {address.key} was free") from None
    return str(host), int(port), str(key)


def _keys(address: BoardAddress) -> set[str]:
    with _connected(address) as connection:
        base.sendjson(connection, [TrackerCode.SUMMARY])
        return {str(server["key"]).partition(":")[2] for server in _answer(connection)["server_info"]}


@contextmanager
def _connected(address: BoardAddress) -> Iterator[socket.socket]:
    with socket.create_connection((address.host, address.port), timeout=_ANSWER_S) as connection:
        connection.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
        if struct.unpack("<i", base.recvall(connection, 4))[0] != base.RPC_TRACKER_MAGIC:
            raise OSError("what listens there is no tracker")
        yield connection


def _answer(connection: socket.socket) -> Any:
    status, answer = base.recvjson(connection)
    if status != TrackerCode.SUCCESS:
        raise OSError(f"the tracker refuses: {answer}")
    return answer
