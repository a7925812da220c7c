"""All networks before the referee: `python -m benchmarks.referee.suite [NAME ...] --repetition K --folder FOLDER`.

Each network is written as ONNX, tuned by `collage tune` with default settings and empty records, and what ships is
raced against the rivals. FOLDER/NAME.K.json has everything of one network and repetition; what is there is skipped, so
an interrupted suite goes on. Run it three times, on other days or hours: repetition K has seeds of its own. The table
puts the repetitions together; `--only table` prints it again. The exit status is 1 when a network was lost, or failed.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from rich.console import Console

from benchmarks.referee.__main__ import add_terms, report, show, terms_of
from benchmarks.referee.process import Entry
from benchmarks.referee.race import Repetition, Terms, race
from benchmarks.referee.tuning import TuningError, tune
from benchmarks.referee.verdict import BESIDE, LOSS, Verdict, judge
from benchmarks.workloads import HELD_OUT, WORKLOADS, build
from collage.files import replacing

SHIPS = "collage"
#: Seeds of repetition K of the suite start at K times this, far from those of the others.
_SEEDS = 100


@dataclass(frozen=True)
class Settings:
    """Of the suite.

    Attributes
    ----------
    folder
        Of the results.
    terms
        Of each race.
    rivals
        Kinds of contestants.
    options
        Of `collage tune`, beside the files.
    records
        Database to tune with; None is an empty one for each network and repetition.
    keep
        Whether compiled models stay in the folder.
    """

    folder: Path
    terms: Terms
    rivals: Sequence[str]
    options: Sequence[str] = ()
    records: Path | None = None
    keep: bool = False


def result_file(folder: Path, network: str, repetition: int) -> Path:
    """Where a network's repetition is written."""
    return folder / f"{network}.{repetition}.json"


def judge_network(network: str, repetition: int, settings: Settings) -> tuple[Verdict, dict[str, Any]]:
    """Tune it, race what ships, and say everything, JSON-ready.

    Raises
    ------
    TuningError
        It could not be tuned.
    ValueError
        No contestant ran.
    """
    with tempfile.TemporaryDirectory(prefix="referee-suite-") as name:
        folder = Path(name)
        model, library = folder / f"{network}.onnx", folder / f"{network}.{repetition}.so"
        model.write_bytes(build(network).SerializeToString(deterministic=True))
        if settings.keep:
            library = settings.folder / library.name
        seeded = [*settings.options, "--seed", str(repetition)]
        tuned = tune(model, library, settings.records or folder / "records.db", seeded)
        entries = [*(Entry(kind, kind, model) for kind in settings.rivals), Entry(SHIPS, "collage", library)]
        repetitions = race(model, entries, settings.terms)
        verdict = judge(repetitions, [SHIPS])
        found = report(model, settings.terms, repetitions, verdict)
    tuning = {"options": seeded, "empty records": settings.records is None, **tuned.facts}
    return verdict, {"network": network, "repetition": repetition, "tune": tuning, **found}


@dataclass(frozen=True)
class Row:
    """One network over all repetitions of the suite.

    Attributes
    ----------
    network
        Its name.
    ships
        What shipped, in each repetition.
    seconds
        Time to a plan, in each repetition.
    verdict
        Over all.
    """

    network: str
    ships: Sequence[str]
    seconds: Sequence[float]
    verdict: Verdict

    @property
    def speedup(self) -> float:
        """Over the best rival, in the median."""
        return self.verdict.standings[SHIPS].speedup.median if self.runs else 0.0

    @property
    def runs(self) -> bool:
        """Whether what ships ran in every repetition."""
        return SHIPS in self.verdict.standings

    @property
    def cells(self) -> list[str]:
        """Of the table, in Markdown."""
        shipped = " / ".join(dict.fromkeys(self.ships))
        minutes = f"{min(self.seconds):.0f}" + (
            f" to {max(self.seconds):.0f} s" if max(self.seconds) >= min(self.seconds) + 1 else " s"
        )
        if not self.runs:
            return [self.network, shipped, minutes, "did not run", ""]
        found = self.verdict.standings[SHIPS]
        ratio = f"{found.speedup.median:.2f} ({found.speedup.low:.2f} to {found.speedup.high:.2f})"
        return [self.network, shipped, minutes, f"{ratio}, {self.verdict.best}", f"{found.steadiness:.2f}"]


def rows_of(results: Iterable[Mapping[str, Any]]) -> list[Row]:
    """A row per network, in the order of the workloads, from what `judge_network` said."""
    grouped: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for result in sorted(results, key=lambda r: int(r["repetition"])):
        grouped[result["network"]].append(result)
    order = {name: place for place, name in enumerate((*WORKLOADS, *HELD_OUT))}
    rows = []
    for network in sorted(grouped, key=lambda name: (order.get(name, len(order)), name)):
        several = grouped[network]
        raced = [msgspec.convert(r, Repetition) for result in several for r in result["repetitions"]]
        rows.append(
            Row(
                network,
                [", ".join(result["tune"]["ships"]) or str(result["tune"]["choice"]) for result in several],
                [result["tune"]["seconds"] for result in several],
                judge(raced, [SHIPS]),
            )
        )
    return rows


def markdown(results: Sequence[Mapping[str, Any]]) -> str:
    """The table of what `judge_network` said, where it comes from, and what it says of the goal."""
    rows = rows_of(results)
    head = ["network", "what ships", "time to a plan", "speed-up over the best rival (95% interval)", "at p95"]
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *(row.cells for row in rows))]
    commits = _distinct(result["commit"] for result in results)
    machines = _distinct(f"{result['machine']['model']}, {result['machine']['cores']} cores" for result in results)
    engines = _distinct(
        f"{name} {result['versions'][name]}"
        for name in ("openvino", "onnxruntime", "torch")
        for result in results
        if name in result["versions"]
    )
    ratios = [row.speedup for row in rows if row.runs]
    lost = [row.network for row in rows if not row.verdict.passed]
    below = [row.network for row in rows if row.speedup < LOSS]
    mean = float(np.exp(np.mean(np.log(ratios)))) if ratios else float("nan")
    settings = _distinct(" ".join(r["tune"]["options"][:-2]) or "default settings" for r in results)
    tunes = _distinct(str(len(row.seconds)) for row in rows)
    text = [
        *lines,
        "",
        f"*Commit {commits}; {machines}; {engines}; "
        f"tunes of each network: {tunes}, with {settings}, each raced in fresh processes. Above 1 is faster. "
        "Verdicts and rivals are of float32: left to itself, OpenVINO computes in bfloat16 where the processor can, "
        "with errors of 0.5% and more.*",
        "",
        f"Geometric mean {mean:.3f}; below {LOSS}: {len(below)} of {len(rows)}"
        + (f" ({', '.join(below)})" if below else "")
        + f", beyond doubt {len(lost)}"
        + (f" ({', '.join(lost)})." if lost else "."),
    ]
    if beside := _beside(rows):
        text += ["", f"Speed-up over OpenVINO's default precision: {beside}."]
    return "\n".join(text)


def _distinct(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts))


def _beside(rows: Sequence[Row]) -> str:
    """What ships against those that decide nothing, network by network."""
    found = []
    for row in rows:
        for name, standing in row.verdict.standings.items():
            if name in BESIDE and row.runs:
                ratio = standing.median / row.verdict.standings[SHIPS].median
                found.append(f"{row.network} {ratio:.2f} (error {standing.error:.0e})")
    return ", ".join(found)


def read(folder: Path, networks: Sequence[str] = ()) -> list[dict[str, Any]]:
    """What is in the folder, of these networks, or of all."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.*.json")) if ".plan." not in path.name]
    return [result for result in found if not networks or result["network"] in networks]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="NAME", help="by default the ten, and the five held out")
    parser.add_argument("--folder", type=Path, default=Path("build/referee"), help="of the results")
    parser.add_argument("--repetition", type=int, default=1, help="number of this run: its seeds and its files")
    parser.add_argument("--records", type=Path, help="database to tune with; empty for each network by default")
    parser.add_argument("--effort", help="of `collage tune`")
    parser.add_argument("--tune", default="", metavar="OPTIONS", help="more options of `collage tune`, in one word")
    parser.add_argument("--races", type=int, default=1, help="races of each model, each with fresh processes")
    parser.add_argument("--keep", action="store_true", help="keep the compiled models in the folder")
    parser.add_argument("--only", choices=["table"], help="print the table of what is in the folder")
    add_terms(parser)
    options = parser.parse_args(arguments)
    networks = options.networks or [*WORKLOADS, *HELD_OUT]
    seeds = range(options.repetition * _SEEDS, options.repetition * _SEEDS + options.races)
    terms = terms_of(parser, options, seeds)
    more = [*(["--effort", options.effort] if options.effort else []), *shlex.split(options.tune)]
    rivals = [kind for kind in options.rivals.split(",") if kind]
    settings = Settings(options.folder, terms, rivals, more, options.records, options.keep)
    options.folder.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if sys.stdout.isatty() else 120)
    failed = False
    for network in networks if options.only is None else ():
        path = result_file(options.folder, network, options.repetition)
        if path.exists():
            continue
        try:
            verdict, result = judge_network(network, options.repetition, settings)
        except (TuningError, ValueError) as error:
            console.print(f"{network}: {error}", markup=False)
            failed = True
            continue
        with replacing(path) as partial:
            partial.write_text(json.dumps(result) + "\n")
        console.print(f"{network}, {result['tune']['seconds']:.0f} s to a plan", style="bold")
        show(verdict, console)
    results = read(options.folder, options.networks)
    if not results:
        parser.error(f"{options.folder} has no results")
    print(markdown(results))
    return 1 if failed or any(not row.verdict.passed for row in rows_of(results)) else 0


if __name__ == "__main__":
    sys.exit(main())
