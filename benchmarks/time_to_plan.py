"""Time to a plan: `python -m benchmarks.time_to_plan [NAME ...] [--checkout DIR ...] --folder FOLDER`.

`collage tune` with default settings and empty records, timed from start to end of its process, on a machine that is
otherwise idle. A small network is tuned before, which is not timed: the first tune after an installation compiles the
C++ of the engines, which takes a quarter of a minute.

Each checkout of Collage's sources that is named is timed, this one by default; name the one before a change, then the
one after. With several, what they ship is raced, each model on its own checkout's `collage.runtime`: a plan that comes
sooner may not be slower by more than 2%. What is in the folder is not tuned again.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.referee.__main__ import add_terms, terms_of
from benchmarks.referee.intervals import ratio_interval
from benchmarks.referee.origin import commit_of, origin
from benchmarks.referee.process import Entry
from benchmarks.referee.race import Terms, race
from benchmarks.referee.tuning import Checkout, TuningError, tune
from benchmarks.workloads import build
from collage.files import replacing

#: Tuned before anything is timed.
_FIRST = "tiny_resnet"
#: Seconds that a plan may take, on two cores.
GOALS: Mapping[str, float] = {"resnet50": 100.0, "densenet121": 180.0, "unet": 120.0}


def time_tune(network: str, checkout: Checkout, folder: Path, options: Sequence[str]) -> dict[str, Any]:
    """Tune it, or read what an earlier run wrote: FOLDER/NETWORK.COMMIT.json, and .so beside it.

    Raises
    ------
    TuningError
        It could not be tuned.
    """
    commit = commit_of(checkout.root) or "unknown"
    facts, library = folder / f"{network}.{commit}.json", folder / f"{network}.{commit}.so"
    if facts.exists():
        found: dict[str, Any] = json.loads(facts.read_text())
        return found
    checkout.register()
    compile_engines(checkout)
    with tempfile.TemporaryDirectory(prefix="time-to-plan-") as temporary:
        model = Path(temporary) / f"{network}.onnx"
        model.write_bytes(build(network).SerializeToString(deterministic=True))
        tuned = tune(model, library, Path(temporary) / "records.db", options, checkout)
    found = {"network": network, "options": list(options), **origin(checkout.root), **tuned.facts}
    with replacing(facts) as partial:
        partial.write_text(json.dumps(found, indent=1) + "\n")
    return found


@cache
def compile_engines(checkout: Checkout) -> None:
    """Tune a small network: what is compiled once per installation is there then."""
    with tempfile.TemporaryDirectory(prefix="time-to-plan-") as temporary:
        model = Path(temporary) / f"{_FIRST}.onnx"
        model.write_bytes(build(_FIRST).SerializeToString(deterministic=True))
        tune(model, model.with_suffix(".so"), Path(temporary) / "records.db", ["--effort", "quick"], checkout)


def race_checkouts(network: str, checkouts: Sequence[Checkout], folder: Path, terms: Terms) -> dict[str, Any]:
    """Latency of what each checkout ships over that of the first one's.

    Raises
    ------
    ValueError
        A model does not run.
    """
    commits = [commit_of(checkout.root) or "unknown" for checkout in checkouts]
    with tempfile.TemporaryDirectory(prefix="time-to-plan-") as temporary:
        model = Path(temporary) / f"{network}.onnx"
        model.write_bytes(build(network).SerializeToString(deterministic=True))
        entries = [
            Entry(commit, "collage", folder / f"{network}.{commit}.so", checkout.root)
            for commit, checkout in zip(commits, checkouts, strict=True)
        ]
        repetitions = race(model, entries, terms)
    missing = {name: reason for r in repetitions for name, reason in r.unavailable.items()}
    if missing:
        raise ValueError(f"{network}: {'; '.join(f'{name} does not run: {why}' for name, why in missing.items())}")
    rounds = {commit: [r.medians[commit] for r in repetitions] for commit in commits}
    ratios = {commit: asdict(ratio_interval(rounds[commit], rounds[commits[0]])) for commit in commits[1:]}
    return {"network": network, "first": commits[0], "latency over the first's": ratios, **origin()}


def markdown(
    tunes: Mapping[str, Sequence[Mapping[str, Any]]], races: Mapping[str, Mapping[str, Any]], goals: Mapping[str, float]
) -> str:
    """A row per network: its goal, the time of each checkout, and the latency of the last one's plan over the first's.

    Parameters
    ----------
    tunes
        Network -> what `time_tune` said of each checkout.
    races
        Network -> what `race_checkouts` said, where there are several.
    goals
        Network -> seconds.
    """
    some = next(iter(tunes.values()))
    head = ["network", "goal, s", *(f"{found['commit']}, s" for found in some)]
    if races:
        head.append("latency, last over first")
    rows = []
    for network, found in tunes.items():
        row = [network, f"{goals[network]:.0f}" if network in goals else ""]
        row += [f"{one['seconds']:.0f} ({', '.join(one['ships']) or one['choice']})" for one in found]
        if races:
            ratio = list(races[network]["latency over the first's"].values())[-1]
            row.append(f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})")
        rows.append(row)
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
    machine, settings = some[-1]["machine"], " ".join(some[-1]["options"]) or "default settings"
    return "\n".join([*lines, "", f"*{machine['model']}, {machine['cores']} cores; {settings}, empty records.*"])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(GOALS))
    parser.add_argument("--checkout", type=Path, action="append", help="folder of Collage's sources; this by default")
    parser.add_argument("--folder", type=Path, default=Path("build/time"), help="of the results")
    parser.add_argument("--tune", default="", metavar="OPTIONS", help="options of `collage tune`, in one word")
    add_terms(parser)
    options = parser.parse_args(arguments)
    checkouts = [Checkout(path.resolve()) for path in options.checkout] if options.checkout else [Checkout()]
    if missing := [str(c.root) for c in checkouts if not (c.root / "collage" / "cli" / "main.py").is_file()]:
        parser.error(f"no sources of Collage in {', '.join(missing)}")
    terms = terms_of(parser, options, Terms().seeds)
    options.folder.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if sys.stdout.isatty() else 120)
    tunes: dict[str, list[dict[str, Any]]] = {}
    races: dict[str, dict[str, Any]] = {}
    try:
        for network in options.networks or GOALS:
            for checkout in checkouts:
                found = time_tune(network, checkout, options.folder, shlex.split(options.tune))
                tunes.setdefault(network, []).append(found)
                console.print(f"{network}, {found['commit']}: {found['seconds']:.0f} s", style="dim")
            if len(checkouts) > 1:
                path = options.folder / f"{network}.race.json"
                races[network] = race_checkouts(network, checkouts, options.folder, terms)
                path.write_text(json.dumps(races[network], indent=1) + "\n")
    except (TuningError, ValueError) as error:
        parser.error(str(error))
    print(markdown(tunes, races, GOALS))
    late = [name for name, found in tunes.items() if found[-1]["seconds"] > GOALS.get(name, float("inf"))]
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
