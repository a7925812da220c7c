"""Turns: of all transactions that change what is known of a key, one at a time does.

A record is the aggregate of its observations: two transactions that add some to one key at the same time would each
leave out the other's. In SQLite one transaction writes at a time. In PostgreSQL each first takes the advisory locks of
its keys, in their order, so that none waits for one that waits for it; they end with the transaction. Keys share a few
locks: a batch of hundreds would fill the server's table of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, text
from sqlalchemy.dialects import postgresql, sqlite

#: "CLLG", the first half of the locks' numbers; and how many they are.
_SPACE, _TURNS = 0x434C4C47, 64
_TAKE = text("SELECT pg_advisory_xact_lock(:space, turn) FROM unnest(CAST(:turns AS integer[])) AS turn")


def take_turns(connection: Connection, digests: Iterable[str] | None = None) -> None:
    """Wait until no other transaction changes any of these keys; None is all keys. To be called once in a transaction,
    before anything else, or again with fewer keys.
    """
    if connection.dialect.name == "postgresql":
        turns = range(_TURNS) if digests is None else sorted({int(digest[:8], 16) % _TURNS for digest in digests})
        connection.execute(_TAKE, {"space": _SPACE, "turns": list(turns)})


def insert_new(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows to a table; one that a transaction of other keys has added meanwhile stays as it is."""
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    if rows:
        connection.execute(insert(table).on_conflict_do_nothing(), list(rows))
