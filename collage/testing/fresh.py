"""Running something in a fresh Python process, which can be killed, and whose hash seed can be chosen."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

#: Seconds that a fresh process has for its imports.
_STARTING = 120.0


class FreshProcessFailed(AssertionError):
    """The process ended with an error, or was killed at its time limit."""


def run(module: str, arguments: Sequence[str], payload: Any = None, hash_seed: str = "random") -> str:
    """What `python -m module arguments...` prints; `payload` comes pickled on its standard input.

    The process finds modules where this one does.

    Raises
    ------
    FreshProcessFailed
        It failed (its last lines of standard error are in the message), or took too long.
    """
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(
        command, input=pickle.dumps(payload), capture_output=True, env=environment, timeout=_STARTING + 300, check=False
    )
    if done.returncode != 0:
        ended = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
        raise FreshProcessFailed(f"{module} ended with {ended}: {done.stderr.decode(errors='replace')[-2000:]}")
    return done.stdout.decode()
