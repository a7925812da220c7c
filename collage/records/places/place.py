"""Place: what differs between the databases that hold records; tables and queries are the same in all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from pathlib import Path

from sqlalchemy import Connection, Engine

from collage.errors import RecordsError


class ServerLost(RecordsError):
    """The server did not answer, or ended the connection: whether the last transaction is stored is not known."""


class Place(ABC):
    """A database, before it is opened.

    Attributes
    ----------
    name
        What people read of it: a path, or an address without its password.
    file
        Of a database that is a file; None of a server's.
    timeout_s
        Seconds after which a database that is in use, or a server that does not answer, is an error.
    """

    name: str
    file: Path | None = None
    timeout_s: float

    @abstractmethod
    def engine(self) -> Engine:
        """Connections to it. Raises RecordsError where that can be told without one."""

    @abstractmethod
    def transaction(self, connection: Connection, writes: bool) -> AbstractContextManager[None]:
        """Everything inside sees the database as of one moment, or, where it writes, is committed as a whole."""

    @abstractmethod
    def version(self, connection: Connection) -> int | None:
        """The version of the schema; None where there are no tables yet. Raises RecordsError where there are tables
        of another program.
        """

    @abstractmethod
    def stamp(self, connection: Connection, version: int) -> None:
        """Write the version of the schema."""

    @abstractmethod
    def require_writable(self, connection: Connection) -> None:
        """Raise, in a transaction that writes, where observations could not be stored."""

    @abstractmethod
    def size_bytes(self, connection: Connection) -> int:
        """What the tables take of the disk."""

    @abstractmethod
    def clear_errors(self) -> AbstractContextManager[None]:
        """What the database's driver raises inside comes out as a RecordsError of one line."""
