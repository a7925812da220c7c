"""What holds for all tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.postgres_server import PostgresServer

# A shell that starts a job in the background lets it ignore Ctrl-C, and everything that the job starts; the tests of
# interruption send themselves one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server for all tests that leave it alone."""
    server = PostgresServer()
    yield server
    server.stop()
