"""What can go wrong with a database file, each as one clear line that says what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from collage.errors import RecordsError

_CHOOSE = "choose another file with --records"


@contextmanager
def clear_errors(path: Path, timeout_s: float) -> Iterator[None]:
    """Turn what SQLite raises about the database at `path` into a RecordsError."""
    try:
        yield
    except DBAPIError as error:
        raise RecordsError(explain(str(error.orig), path, timeout_s)) from error
    except (sqlite3.Error, SQLAlchemyError) as error:
        raise RecordsError(explain(str(error), path, timeout_s)) from error


def explain(message: str, path: Path, timeout_s: float) -> str:
    """One line on what SQLite's `message` means for the user of the database at `path`."""
    text = message.lower()
    if "disk is full" in text:
        return (
            f"{path}: the disk is full; the last record was not stored, all before it are kept: "
            f"free some space or {_CHOOSE}"
        )
    if "readonly" in text or "read-only" in text:
        if not path.exists():
            return (
                f"{path} was moved or deleted while it was open; the last record was not stored: {_CHOOSE} or run again"
            )
        return f"{path} cannot be written: the file, its folder or its disk is read-only; make it writable or {_CHOOSE}"
    if "unable to open" in text:
        return f"{path} cannot be opened or created: check that its folder exists and is writable, or {_CHOOSE}"
    if "not a database" in text:
        return f"{path} is not a records database; it was left as it is: {_CHOOSE}"
    if "malformed" in text:
        return (
            f"{path} is damaged ({_first_damage(path)}); it was left as it is: `sqlite3 {path.name} .recover` may save "
            f"what is whole; move it away or {_CHOOSE}"
        )
    if "locked" in text:
        return (
            f"{path} is in use by another process and did not come free within {timeout_s:g} s: try again or {_CHOOSE}"
        )
    if "disk i/o error" in text:
        return f"{path}: the system could not read or write the file (quota, size limit or a failing disk): {_CHOOSE}"
    return f"{path}: {message}"


def _first_damage(path: Path) -> str:
    """The first finding of SQLite's own check; the check cannot itself fail the report."""
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    except sqlite3.Error as error:
        return str(error)
    try:
        finding = connection.execute("PRAGMA quick_check(1)").fetchone()
        return " ".join(str(finding[0]).replace("*** in database main ***", "").split()) if finding else "no finding"
    except sqlite3.Error as error:
        return str(error)
    finally:
        connection.close()
