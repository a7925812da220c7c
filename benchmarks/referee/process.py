"""A contestant's process as the referee holds it: stopped unless it is its turn."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
#: Seconds that a contestant may take to load, and to answer.
_LIMIT_S = 600.0


@dataclass(frozen=True)
class Entry:
    """Who is to be raced.

    Attributes
    ----------
    name
        What the report calls it.
    kind
        How it is called (`benchmarks.referee.contestant.KINDS`).
    file
        The user's ONNX file, or a model that Collage compiled.
    root
        Of the checkout whose `collage.runtime` runs it.
    """

    name: str
    kind: str
    file: Path
    root: Path = _ROOT


class ContestantError(Exception):
    """A contestant cannot be loaded, ended, or does not answer."""


@dataclass
class Contestant:
    """A process that runs one contestant."""

    name: str
    process: subprocess.Popen[str]
    facts: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def start(cls, entry: Entry, inputs: Path, threads: int) -> Contestant:
        """Load it, call it once, and stop it.

        Raises
        ------
        ContestantError
            It cannot be loaded or called.
        """
        script = Path(__file__).with_name("contestant.py")
        command = [sys.executable, str(script), entry.kind, str(entry.file), str(inputs), str(threads)]
        path = os.pathsep.join(filter(None, [str(entry.root), os.environ.get("PYTHONPATH")]))
        settings = {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env={**os.environ, **settings}
        )
        contestant = cls(entry.name, process)
        try:
            contestant.facts = contestant._answer()
            process.send_signal(signal.SIGSTOP)
        except BaseException:
            contestant.close()
            raise
        return contestant

    def ask(self, **request: Any) -> dict[str, Any]:
        """Wake it, put one request, and stop it again.

        Raises
        ------
        ContestantError
            It ends, or does not answer.
        """
        assert self.process.stdin is not None
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise ContestantError(f"{self.name} ended with status {self.process.wait()}") from error
        answer = self._answer()
        self.process.send_signal(signal.SIGSTOP)
        return answer

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        limit = Timer(_LIMIT_S, self.process.kill)
        limit.start()
        try:
            line = self.process.stdout.readline()
        finally:
            limit.cancel()
        if not line:
            raise ContestantError(f"{self.name} ended with status {self.process.wait()}")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise ContestantError(f"{self.name}: {found['error']}")
        return found

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
