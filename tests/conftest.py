"""What holds for all tests."""

from __future__ import annotations

import signal
import weakref
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import pytest

from collage.runtime import engines
from collage.runtime.threads import default_threads, prepare_threads
from tests.postgres_server import PostgresServer

# A shell that starts a job in the background lets it ignore Ctrl-C, and everything that the job starts; the tests of
# interruption send themselves one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _threads_of_a_model() -> None:
    """As before the first call of a model. Else TVM's pool is TVM's own choice where a test calls an engine first: the
    calling thread, and whatever it starts later, is bound to one processor.
    """
    prepare_threads(default_threads())


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server for all tests that leave it alone."""
    server = PostgresServer()
    yield server
    server.stop()


@pytest.fixture
def engines_made(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[Any]]:
    """References to the functions that engines in Python make from now on, which keep none of them."""
    made: list[weakref.ref[Any]] = []
    create = engines.create

    def noted(*arguments: Any) -> Any:
        run = create(*arguments)
        if isinstance(run, FunctionType):
            made.append(weakref.ref(run))
        return run

    monkeypatch.setattr(engines, "create", noted)
    return made
