"""PostgresDatabase: records in a database of a PostgreSQL server, for many hosts at once.

A transaction of PostgreSQL that is committed is on the server's disk, and one that is not leaves nothing. A server that
is lost in between leaves it open whether the last one was committed. Whoever stores observations may just do it again:
they have an identity, so what is there already is not stored twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from collage.errors import RecordsError
from collage.records.places.place import Place, ServerLost

_CHOOSE = "choose another database with --records"
_LIKE = "like postgresql+psycopg://user@host:5432/database"
_TABLES = ("observations", "records", "texts")
#: Connections that one process has at most.
_CONNECTIONS = 8
#: Classes of SQLSTATE after which the same may go well on a new connection: no connection, deadlocks, too little of
#: something, an administrator's or the server's own end.
_PASSING = ("08", "40", "53", "57")
_FULL = "53100"
#: What is wrong, and what to do, by SQLSTATE.
_EXPLAINED = {
    _FULL: f"the server's disk is full; the last record was not stored, all before it are kept: free some or {_CHOOSE}",
    "25006": f"the server takes no changes now (a standby, or set to read only): name the primary, or {_CHOOSE}",
    "28P01": "the server refuses the password",
    "3D000": "the server has no such database: make it (`createdb`), or name another one with --records",
    "42501": f"the role may not do that: grant it the tables of the records, or {_CHOOSE}",
    "55P03": "the records are in use by other processes and did not come free in time: try again",
}


class PostgresDatabase(Place):
    """The database at an address, whose tables are made where there are none.

    Parameters
    ----------
    address
        As SQLAlchemy writes it: `postgresql+psycopg://user:password@host:port/database?sslmode=verify-full`.
    timeout_s
        See `Place`.
    """

    def __init__(self, address: str, timeout_s: float) -> None:
        try:
            url = make_url(address)
        except (ArgumentError, ValueError) as error:  # not shown as it is: there may be a password in it
            raise RecordsError(
                f"records are in a file or at an address {_LIKE}, and this one reads otherwise"
            ) from error
        if url.drivername not in ("postgresql", "postgresql+psycopg"):
            raise RecordsError(f"records are in a file or at an address {_LIKE}, not {url.drivername}:")
        self._url = url.set(drivername="postgresql+psycopg")
        self.name = self._url.render_as_string(hide_password=True)
        self.timeout_s = timeout_s

    def engine(self) -> Engine:
        limits = {
            "connect_timeout": max(2, round(self.timeout_s)),
            "tcp_user_timeout": round(1000 * self.timeout_s),  # a network that was cut
            "application_name": "collage",
        }
        try:
            engine = create_engine(
                self._url,
                pool_pre_ping=True,  # connections that a server lost while nobody used them are replaced
                pool_size=_CONNECTIONS,
                max_overflow=0,
                pool_timeout=self.timeout_s,
                connect_args={name: value for name, value in limits.items() if name not in self._url.query},
            )
        except ModuleNotFoundError as error:
            raise RecordsError(
                f"records at {self.name} need the package {error.name}: pip install 'collage-tvm[scale]'"
            ) from error
        event.listen(engine, "connect", self._configure)
        return engine

    @contextmanager
    def transaction(self, connection: Connection, writes: bool) -> Iterator[None]:
        # In one that writes each statement sees what was committed before it (`collage.records.transactions`).
        connection.execution_options(isolation_level="READ COMMITTED" if writes else "REPEATABLE READ")
        with connection.begin():
            yield

    def version(self, connection: Connection) -> int | None:
        # In this order: whoever makes them meanwhile makes all of them visible at once.
        others = any(_has_table(connection, name) for name in _TABLES)
        if _has_table(connection, "collage_schema"):
            return int(connection.exec_driver_sql("SELECT max(version) FROM collage_schema").scalar_one())
        if others:
            raise RecordsError(
                f"{self.name} has tables of another program, named like those of records; they were left as they are: "
                f"{_CHOOSE}"
            )
        return None

    def stamp(self, connection: Connection, version: int) -> None:
        connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS collage_schema (version integer NOT NULL)")
        connection.exec_driver_sql("DELETE FROM collage_schema")
        connection.exec_driver_sql(f"INSERT INTO collage_schema VALUES ({version})")

    def require_writable(self, connection: Connection) -> None:
        rights = " AND ".join(f"has_table_privilege('{name}', 'INSERT')" for name in _TABLES)
        query = (
            f"SELECT current_setting('transaction_read_only') = 'off' AND {rights} "
            "AND has_table_privilege('records', 'UPDATE')"
        )
        if not connection.exec_driver_sql(query).scalar():
            raise RecordsError(f"{self.name} cannot be written: the role, or the whole server, may only read")

    def size_bytes(self, connection: Connection) -> int:
        sizes = " + ".join(f"pg_total_relation_size('{name}')" for name in _TABLES)
        return int(connection.exec_driver_sql(f"SELECT {sizes}").scalar_one())

    @contextmanager
    def clear_errors(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            state = getattr(error.orig, "sqlstate", None)
            said = _EXPLAINED.get(state or "", " ".join(str(error.orig).split()))
            lost = state[:2] in _PASSING if state else error.connection_invalidated or _of_connection(error)
            kind = ServerLost if lost and state != _FULL else RecordsError
            raise kind(f"{self.name}: {said}") from error
        except SQLAlchemyError as error:
            raise RecordsError(f"{self.name}: {' '.join(str(error).split())}") from error

    def _configure(self, connection: Any, _: object) -> None:
        """A commit is on disk when it returns, whatever the server's default is, and no lock is waited for for ever."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT set_config('synchronous_commit', 'on', false) "
                "WHERE current_setting('synchronous_commit') IN ('off', 'local')"
            )
            cursor.execute(f"SET lock_timeout = {round(1000 * self.timeout_s)}")
        connection.commit()


def _has_table(connection: Connection, name: str) -> bool:
    return connection.exec_driver_sql(f"SELECT to_regclass('{name}')").scalar() is not None


def _of_connection(error: DBAPIError) -> bool:
    """Of an error without SQLSTATE: whether psycopg found no server, or lost it."""
    import psycopg

    return isinstance(error.orig, psycopg.OperationalError)
