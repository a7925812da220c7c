"""Tables of what the suite judged: `python -m benchmarks.precision.table [--folder FOLDER]`, in Markdown.

Speed-ups are latencies of the best rival that keeps the budget over those of what ships. A budget that what ships does
not keep on the unseen samples, or where it does not run, has no speed-up: it is counted, and told.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workloads import HELD_OUT, WORKLOADS

#: What ships loses when it is below so much of the best rival's speed.
LOSS = 0.98
_BY_COLUMNS = 3


def kept(cell: Mapping[str, Any]) -> bool:
    """Whether what ships runs and keeps the budget."""
    error = cell["ours"]["error"]
    return error is not None and error["mean"] <= cell["budget"] and "rival" in cell


def speedups(results: Iterable[Mapping[str, Any]], budget: str, over: str = "rival") -> list[float]:
    """Of the networks whose budget is kept."""
    cells = (result["cells"][budget] for result in results if budget in result["cells"])
    return [cell[over]["ratio"] for cell in cells if kept(cell)]


def geometric_mean(values: Sequence[float]) -> float:
    """NaN of nothing."""
    return float(np.exp(np.mean(np.log(values)))) if values else float("nan")


def budgets_of(results: Iterable[Mapping[str, Any]]) -> list[str]:
    """All that were judged, the smallest first."""
    return sorted({budget for result in results for budget in result["cells"]}, key=float)


def rows(title: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (title, ["---"] * len(title), *lines))


def percent(share: float | str) -> str:
    """0.005 -> 0.5%."""
    return f"{100 * float(share):.3g}%"


def cell_text(cell: Mapping[str, Any] | None) -> str:
    """Of one network and budget."""
    if cell is None:
        return ""
    error = cell["ours"]["error"]
    if error is None:
        return "did not run"
    if not kept(cell):
        return f"error {percent(error['mean'])}"
    found = cell["rival"]
    return f"{found['ratio']:.2f} ({found['low']:.2f} to {found['high']:.2f}) {found['name']}, {percent(error['mean'])}"


def by_network(results: Sequence[Mapping[str, Any]]) -> str:
    """Speed-up with its interval, over whom, and our error: three budgets a table."""
    budgets, parts = budgets_of(results), []
    for begin in range(0, len(budgets), _BY_COLUMNS):
        chosen = budgets[begin : begin + _BY_COLUMNS]
        lines = [[r["network"], *(cell_text(r["cells"].get(budget)) for budget in chosen)] for r in results]
        parts.append(rows(["network", *(f"within {percent(budget)}" for budget in chosen)], lines))
    return "\n\n".join(parts)


def by_budget(results: Sequence[Mapping[str, Any]]) -> str:
    """Geometric means over networks."""
    lines = []
    for budget in [*budgets_of(results), ""]:
        chosen = [budget] if budget else budgets_of(results)
        over = [x for each in chosen for x in speedups(results, each)]
        plain = [x for each in chosen for x in speedups(results, each, "float32")]
        there = [r["cells"][each] for r in results for each in chosen if each in r["cells"]]
        below, broken = sum(ratio < LOSS for ratio in over), sum(not kept(cell) for cell in there)
        lines.append(
            [
                percent(budget) if budget else "all",
                f"{geometric_mean(over):.3f}",
                f"{geometric_mean(plain):.3f}",
                f"{below} of {len(there)}",
                f"{broken} of {len(there)}",
            ]
        )
    return rows(["error within", "over the best rival", "over float32", f"below {LOSS}", "budget not kept"], lines)


def by_rival(results: Sequence[Mapping[str, Any]]) -> str:
    """Errors of what does not depend on the budget."""
    names = ["openvino-bf16", "openvino-int8", "openvino-int8-bf16", "onnxruntime-int8"]

    def text(result: Mapping[str, Any], name: str) -> str:
        found = result["rivals"].get(name)
        return percent(found["error"]["mean"]) if found and found["error"] else "none"

    return rows(["network", *names], [[r["network"], *(text(r, name) for name in names)] for r in results])


def effort(results: Sequence[Mapping[str, Any]]) -> str:
    """What it takes to keep a budget: NNCF's accuracy control against Collage."""
    lines = []
    for result in results:
        for budget, cell in sorted(result["cells"].items(), key=lambda item: float(item[0])):
            facts = result["made"].get(f"nncf-{budget}", {})
            took = f"{facts['validations']} in {facts['seconds']:.0f} s" if "validations" in facts else "no result"
            ours = certificate(cell["plan"])
            validations = str(ours["validations"]) if "validations" in ours else "?"
            gap = percent(ours["gap"]) if "gap" in ours else "?"
            seconds = f"{validations} in {cell['tune']['seconds']:.0f} s"
            lines.append([result["network"], percent(budget), took, seconds, gap])
    return rows(["network", "error within", "validations of NNCF", "of Collage", "gap of the certificate"], lines)


def certificate(plan: Mapping[str, Any]) -> dict[str, Any]:
    """What the plan's file says: "gap", how much faster any other placement of the same error could be at most, and
    "validations", placements that were run on held-out samples; {} of a plan without a budget.
    """
    found = plan.get("accuracy")
    return {"gap": found["gap"], "validations": found["judged"]} if found else {}


def markdown(results: Sequence[Mapping[str, Any]]) -> str:
    """All tables, those of networks that nothing was tuned to apart."""
    order = {name: place for place, name in enumerate((*WORKLOADS, *HELD_OUT))}
    several = sorted(results, key=lambda r: (order.get(r["network"], len(order)), r["network"]))
    parts = []
    for title, chosen in {
        "Networks of the benchmark": [r for r in several if not r["held out"]],
        "Networks that nothing was tuned to": [r for r in several if r["held out"]],
    }.items():
        if chosen:
            tables = [by_budget(chosen), by_network(chosen), by_rival(chosen), effort(chosen)]
            parts += [f"## {title}", *tables, where(chosen)]
    return "\n\n".join(parts)


def where(results: Sequence[Mapping[str, Any]]) -> str:
    """Machine, versions, commits and terms, and what is missing."""
    commits = dict.fromkeys(str(cell["commit"]) for result in results for cell in result["cells"].values())
    machines = dict.fromkeys(f"{r['machine']['model']}, {r['machine']['cores']} cores" for r in results)
    engines = dict.fromkeys(
        f"{name} {r['versions'][name]}"
        for r in results
        for name in ("openvino", "onnxruntime")
        if name in r["versions"]
    )
    nncf = dict.fromkeys(f"NNCF {facts['nncf']}" for r in results for facts in r["made"].values() if "nncf" in facts)
    samples = dict.fromkeys(str(r["samples"]) for r in results)
    others = dict.fromkeys(
        str(len(found["error"]["samples"])) for r in results for found in r["rivals"].values() if found["error"]
    )
    without = "" if nncf else " NNCF was left out: the table has fewer rivals than the field."
    return (
        f"*Commit {', '.join(commits)}; {', '.join(machines)}; {', '.join([*engines, *nncf])}; "
        f"{', '.join(samples)} samples calibrate and {', '.join(others)} others judge. Above 1 is faster.{without}*"
    )


def read(folder: Path, names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """What is in the folder, of these networks, or of all."""
    files = sorted(path for ending in ("*.json", "*.json.gz") for path in folder.glob(ending))
    found = [json.loads(gzip.decompress(p.read_bytes()) if p.suffix == ".gz" else p.read_bytes()) for p in files]
    return [r for r in found if "cells" in r and (not names or r["network"] in names)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="NETWORK")
    parser.add_argument("--folder", type=Path, default=Path("build/precision"))
    options = parser.parse_args(arguments)
    results = read(options.folder, options.networks)
    if not results:
        parser.error(f"{options.folder} has no results")
    print(markdown(results))


if __name__ == "__main__":
    main()
