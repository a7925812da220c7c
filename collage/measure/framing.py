"""Framing: messages between processes of Collage, over a pipe: pickled, each framed by its length."""

from __future__ import annotations

import pickle
import struct
from typing import IO, Any


def send(stream: IO[bytes], message: Any) -> None:
    """Write one message."""
    data = pickle.dumps(message)
    stream.write(struct.pack("<Q", len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read one message. Raises EOFError when the other side has gone."""
    header = _exactly(stream, 8)
    return pickle.loads(_exactly(stream, struct.unpack("<Q", header)[0]))


def _exactly(stream: IO[bytes], count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = stream.read(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data
