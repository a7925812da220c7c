"""Tuning as a user does it: `collage tune` in a process of its own, timed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
#: How the command says that a stage is done: `measuring: 655 in 2 min 45 s`.
_STAGE = re.compile(
    r"(?P<name>[a-z][a-z -]*)(?:: [0-9].*)? in (?:(?P<h>\d+) h )?(?:(?P<min>\d+) min ?)?(?:(?P<s>\d+) s)?"
)


class TuningError(Exception):
    """`collage tune` failed; the message has its last lines."""


@dataclass(frozen=True)
class Checkout:
    """A tree of Collage's sources to tune with, and to run what it compiled.

    Attributes
    ----------
    root
        Its folder.
    """

    root: Path = _ROOT

    def environment(self) -> dict[str, str]:
        """Environment in which `import collage` finds this tree, ahead of what is installed."""
        path = os.pathsep.join(filter(None, [str(self.root), os.environ.get("PYTHONPATH")]))
        return {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}

    def register(self) -> None:
        """Write the tree's entry points beside its packages, where they are missing: the plug-ins of the installed
        tree would be taken otherwise.
        """
        if not list(self.root.glob("*.egg-info")):
            command = [sys.executable, "-c", "from setuptools import setup; setup()", "-q", "egg_info"]
            subprocess.run(command, cwd=self.root, check=True, stdout=subprocess.DEVNULL)


@dataclass(frozen=True)
class Tuned:
    """What a tune left behind.

    Attributes
    ----------
    library
        The compiled model.
    seconds
        From start to end of the process: time to a plan.
    plan
        The plan's file, parsed.
    stages
        Stage -> seconds, of those that took a second or more, rounded, in order; a stage that came again is added up.
    """

    library: Path
    seconds: float
    plan: Mapping[str, Any]
    stages: Mapping[str, int] = field(default_factory=dict)

    @property
    def facts(self) -> dict[str, Any]:
        """What a report holds, JSON-ready."""
        return {
            "seconds": round(self.seconds, 1),
            "stages": dict(self.stages),
            "choice": self.plan.get("choice"),
            "ships": ships(self.plan),
            "estimator": self.plan.get("estimator"),
            "notes": self.plan.get("notes", []),
            "contest": contest(self.plan),
        }


def ships(plan: Mapping[str, Any]) -> dict[str, int]:
    """Backend -> partitions of what ships, most first; the host's nodes are left out. TVM's own build has none."""
    used = Counter(partition["backend"] for partition in plan.get("partitions", []))
    used.pop("host", None)
    return dict(used.most_common())


def contest(plan: Mapping[str, Any]) -> dict[str, Any]:
    """What the tune's own contest said of everybody who was in its final: beside the referee's verdict it shows how
    long a choice holds. `ratio` is of the latency to that of what ships, with its interval.
    """
    confirmation = plan.get("confirmation") or {}
    final = [c for c in confirmation.get("rivals", []) if c.get("fresh")]
    told = {c["name"]: {"seconds": c["latency"]["seconds"], "ratio": c.get("ratio")} for c in final}
    return {"disturbed": confirmation.get("disturbed", 0.0), "final": told}


def stages_of(progress: str) -> dict[str, int]:
    """Seconds of each stage, from what the command wrote of its progress."""
    found: dict[str, int] = {}
    for line in progress.splitlines():
        if stage := _STAGE.fullmatch(line.strip()):
            hours, minutes, seconds = (int(stage[unit] or 0) for unit in ("h", "min", "s"))
            found[stage["name"]] = found.get(stage["name"], 0) + 3600 * hours + 60 * minutes + seconds
    return found


def tune(
    model: Path,
    library: Path,
    records: Path,
    options: Sequence[str],
    checkout: Checkout | None = None,
    limit_s: float | None = None,
) -> Tuned:
    """Run `collage tune MODEL -o LIBRARY`.

    Parameters
    ----------
    records
        Database; made where it does not exist.
    options
        More of the command's options.
    checkout
        The tree to run; None is this one.
    limit_s
        Seconds that it may take.

    Raises
    ------
    TuningError
        The command failed, or took too long.
    """
    checkout = checkout or Checkout()
    plan = library.with_suffix(".plan.json")
    files = [str(model.resolve()), "-o", str(library.resolve()), "--plan", str(plan.resolve())]
    command = [sys.executable, "-m", "collage.cli.main", "tune", *files, "--records", str(records.resolve()), *options]
    begin = time.monotonic()
    environment = checkout.environment()
    try:
        done = subprocess.run(
            command, cwd=checkout.root, env=environment, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise TuningError(f"tuning {model.name} took more than {limit_s:.0f} s") from error
    seconds = time.monotonic() - begin
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-5:]
        raise TuningError(f"tuning {model.name} ended with status {done.returncode}: {' | '.join(last)}")
    return Tuned(library, seconds, json.loads(plan.read_text()), stages_of(done.stderr))
