"""A PostgreSQL server of the tests' own: on a socket in a folder of its own, run by a user without rights."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

#: A server that is run by the superuser refuses to start.
USER = next((u.pw_name for u in pwd.getpwall() if u.pw_name == "postgres"), "nobody")


def program(name: str) -> str:
    """One of PostgreSQL's programs. Raises FileNotFoundError."""
    newest = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), key=lambda path: int(path.split("/")[4]))
    found = newest[-1] if newest else shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"the tests of `make test-scale` need PostgreSQL's {name}: apt-get install postgresql")
    return found


class PostgresServer:
    """A server that can be killed and started again; one that is measured syncs its disk at each commit."""

    def __init__(self, fsync: bool = False) -> None:
        self._fsync = fsync
        self.folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # the path of a socket is at most 107 bytes long
        self._as: dict[str, object] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        if os.geteuid() == 0:
            user = pwd.getpwnam(USER)
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self._as |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        command = [program("initdb"), "-D", str(self.data), "-U", "collage", "--auth=trust", "--locale=C", "-E", "UTF8"]
        subprocess.run([*command, "--no-sync"], check=True, cwd="/", **self._as)  # type: ignore[call-overload]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self) -> None:
        """Start it, and wait until it takes connections: after a crash it first recovers."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:  # children of a killed one still end
                command = [program("postgres"), "-D", str(self.data), "-k", str(self.folder), "-c", "listen_addresses="]
                # Processes are killed here, not machines: what was written is in the system's memory.
                options = ["-c", "max_connections=200", "-c", f"fsync={'on' if self._fsync else 'off'}"]
                self._process = subprocess.Popen([*command, *options], cwd="/", **self._as)  # type: ignore[call-overload]
            ready = [program("pg_isready"), "-q", "-h", str(self.folder)]
            if subprocess.run(ready).returncode == 0:
                return
            time.sleep(0.05)
        raise TimeoutError("the PostgreSQL server does not start")

    def kill(self) -> None:
        """As a power cut does to its processes: at once, in the middle of whatever they do."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """End it, and remove its files."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(timeout=30)
        shutil.rmtree(self.folder, ignore_errors=True)

    def address(self, database: str, user: str = "collage") -> str:
        return f"postgresql+psycopg://{user}@/{database}?host={self.folder}"

    def run(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run one statement outside of a transaction."""
        import psycopg

        with psycopg.connect(host=str(self.folder), user="collage", dbname=database, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def new_database(self) -> str:
        """The address of an empty database."""
        name = f"d{uuid.uuid4().hex[:12]}"
        self.run(f"CREATE DATABASE {name} TEMPLATE template0")
        return self.address(name)
