"""A clean terminal: what libraries write, in whatever way, is seen with --verbose only."""

from __future__ import annotations

import subprocess
import sys

import pytest

_NOISE = """
import os, subprocess, sys, warnings
from collage.cli.terminal import quiet
print("before")
with quiet(verbose={verbose}) as terminal:
    os.write(1, b"noise from C, 1\\n"); os.write(2, b"noise from C, 2\\n")
    print("noise from Python"); warnings.warn("noise from a warning")
    subprocess.run(["sh", "-c", "echo noise from a child; echo noise from a child >&2"])
    print("progress", file=terminal, flush=True)
print("after"); print("after", file=sys.stderr)
try:
    with quiet(verbose={verbose}):
        raise ValueError
except ValueError:
    print("restored"); print("restored", file=sys.stderr)
"""


@pytest.mark.parametrize("verbose", [False, True])
def test_only_collage_writes_to_the_terminal(verbose: bool) -> None:
    command = [sys.executable, "-c", _NOISE.format(verbose=verbose)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    if verbose:
        assert (done.stdout + done.stderr).count("noise") >= 6
        assert "progress" in done.stderr
    else:
        assert done.stdout.split() == ["before", "after", "restored"]
        assert done.stderr.split() == ["progress", "after", "restored"]


def test_a_process_without_standard_streams_gets_some() -> None:
    code = "from collage.cli.terminal import open_standard_streams\nopen_standard_streams()\n"
    code += "import os, sys; print('lost', file=sys.stderr); print(os.open('/dev/zero', os.O_RDONLY) > 2)"
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" -c "$1" <&- 2>&-', sys.executable, code], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
