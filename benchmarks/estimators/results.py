"""The results file of an evaluation: JSON lines, network by network, so that one that was interrupted goes on.

The first line says what was evaluated. The lines of a network count once its last one, `{"network": ..., "done":
true}`, is there; what an interrupted network left behind is dropped when the file is opened again.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.estimators.scores import Pairs
from collage.errors import CollageError

_LISTS = ("predicted", "recorded", "low", "high")


@dataclass
class Outcome:
    """Predictions of one model for all tested networks, and the regret of its placements.

    Attributes
    ----------
    predicted, recorded, low, high
        Backend -> seconds of each candidate; the intervals' ends where there are any.
    pairs
        How often the faster backend was predicted.
    regrets, ratios
        Network -> additive, and end-to-end, regret.
    """

    predicted: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    recorded: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    low: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    high: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    pairs: Pairs = field(default_factory=lambda: Pairs(0, 0))
    regrets: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)


class Results:
    """The rows of an evaluation, on disk.

    Parameters
    ----------
    path
        Of the file; continued when it exists.
    settings
        What is evaluated, JSON-ready; a file of other settings is not continued.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.settings = json.loads(json.dumps(settings))
        rows = read_rows(path) if path.exists() else []
        if rows and rows[0].get("settings") != self.settings:
            raise CollageError(f"{path} holds the results of other settings or records: choose another file with --out")
        done = {row["network"] for row in rows if row.get("done")}
        self.rows: list[dict[str, Any]] = [row for row in rows[1:] if row.get("network") in done]
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [{"settings": self.settings}, *self.rows]
        path.write_text("".join(json.dumps(row) + "\n" for row in lines))

    @property
    def done(self) -> set[str]:
        """The networks that are complete."""
        return {row["network"] for row in self.rows if row.get("done")}

    def write(self, **row: Any) -> None:
        """Add a row; infinite numbers become text, and what is no number null."""
        self.rows.append(_finite(row))
        with self.path.open("a") as out:
            out.write(json.dumps(self.rows[-1]) + "\n")

    def outcomes(self, models: Iterable[str]) -> dict[str, Outcome]:
        """The outcome of each model, over all networks that are complete."""
        outcomes = {name: Outcome() for name in models}
        for row in self.rows:
            found = outcomes.get(row.get("model", ""))
            if found is None or row["network"] not in self.done:
                continue
            for name in _LISTS:
                getattr(found, name)[row.get("backend")] += [_number(x) for x in row.get(name) or ()]
            found.pairs += Pairs(row.get("pairs", 0), row.get("right", 0))
            if "additive_regret" in row:
                found.regrets[row["network"]] = _number(row["additive_regret"])
            if "end_to_end_regret" in row:
                found.ratios[row["network"]] = _number(row["end_to_end_regret"][0])
        for found in outcomes.values():
            for name in _LISTS:
                filled = {backend: numbers for backend, numbers in getattr(found, name).items() if numbers}
                setattr(found, name, filled)
        return outcomes


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, settings first, up to where a killed run left off."""
    rows = []
    for line in path.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:  # the last line of a run that was killed
            break
    return rows


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "infinite"
    return value


def _number(value: Any) -> float:
    return math.nan if value is None else math.inf if value == "infinite" else float(value)
