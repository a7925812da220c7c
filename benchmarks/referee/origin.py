"""Where numbers come from: commit, machine, versions; what every report holds."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from collage.runtime.device_info import describe_device

_ROOT = Path(__file__).resolve().parents[2]


def origin(root: Path = _ROOT) -> dict[str, Any]:
    """Commit of the checkout at `root`, this machine, and the versions of all packages; JSON-ready."""
    versions = {found.metadata["Name"]: found.version for found in distributions() if found.metadata["Name"]}
    return {
        "commit": commit_of(root),
        "machine": {**describe_device().as_dict(), "kernel": platform.release()},
        "versions": {"python": platform.python_version(), **dict(sorted(versions.items(), key=str))},
    }


def commit_of(root: Path) -> str:
    """Abbreviated, with "-dirty" where files differ from it; "" where there is none."""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude", "*"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
