"""Address of boards: the host and port of their tracker, and the key that they have there."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from collage.errors import CollageError

#: Where TVM's tracker listens unless it is told otherwise.
_PORT = 9190


@dataclass(frozen=True)
class BoardAddress:
    """`rpc://host:port/key`.

    Attributes
    ----------
    host, port
        Of the tracker.
    key
        That boards of one kind have there.
    """

    host: str
    port: int
    key: str

    @classmethod
    def parse(cls, text: str) -> BoardAddress:
        """The address that a text is.

        Raises
        ------
        CollageError
            It does not read like one.
        """
        parts = urlsplit(text)
        try:
            host, port = parts.hostname, parts.port or _PORT
        except ValueError:
            host, port = None, 0
        key = parts.path.strip("/")
        if parts.scheme != "rpc" or not host or not key or "/" in key or ":" in key:
            raise CollageError(f"the runner {text!r} does not read like rpc://tracker:9190/key")
        return cls(host, port, key)

    @property
    def tracker(self) -> str:
        """The tracker's part of it."""
        return f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"rpc://{self.tracker}/{self.key}"
