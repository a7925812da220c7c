"""All networks under error budgets: `python -m benchmarks.precision.suite [NETWORK ...] --budgets 0.001,0.01`.

For each network: rivals are made from the ONNX file and the calibration samples; `collage tune --max-error E
--calibration` tunes with the same, with one records database for all budgets; the errors of all are judged on unseen
samples; then, for each budget, what Collage ships is raced by the referee against the fastest rivals that keep the
budget and against the fastest engines in float32. FOLDER/NETWORK.json has everything; budgets that are there are
skipped, so an interrupted suite goes on. `--only prepare` makes the rivals, prints their errors and ends; `--only race`
judges and races what shipped for those budgets once more, against the rivals that there are by now.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.precision import samples as made_samples
from benchmarks.precision.error import Outputs, variation
from benchmarks.precision.judged import Judged, finalists, judge_errors, run
from benchmarks.precision.rivals import Nncf, has_nncf, rivals
from benchmarks.precision.samples import Sample
from benchmarks.referee.intervals import ratio_interval
from benchmarks.referee.origin import origin
from benchmarks.referee.process import Entry
from benchmarks.referee.race import Repetition, Terms, race
from benchmarks.referee.tuning import TuningError, tune
from benchmarks.workloads import HELD_OUT, WORKLOADS, build
from collage.files import replacing

SHIPS = "collage"
BUDGETS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1)
#: The engines as they compute without a budget.
FLOAT32 = ("openvino", "onnxruntime")
#: Defines the outputs: ONNX Runtime in float32, node by node.
_DEFINITION = "onnxruntime-plain"


@dataclass(frozen=True)
class Settings:
    """Of the suite.

    Attributes
    ----------
    folder
        Of the results.
    work
        Of what is made: models, samples, rivals, records, compiled models.
    terms
        Of each race.
    samples
        How many calibrate, and how many judge.
    budgets
        Errors.
    options
        Of `collage tune`, beside files and budget.
    nncf
        How NNCF is run; None leaves it out.
    """

    folder: Path
    work: Path
    terms: Terms
    samples: int = 16
    budgets: Sequence[float] = BUDGETS
    options: Sequence[str] = ()
    nncf: Nncf | None = None


@dataclass(frozen=True)
class Prepared:
    """A network with its rivals.

    Attributes
    ----------
    model, calibration
        Files: everybody's.
    unseen, expected
        Samples that nobody is given, and the outputs that define what is right.
    entries, facts
        The rivals, and what it took to make them.
    judged
        What they are, alone.
    """

    model: Path
    calibration: Path
    unseen: Sequence[Sample]
    expected: Sequence[Outputs]
    entries: Sequence[Entry]
    facts: Mapping[str, Mapping[str, Any]]
    judged: Mapping[str, Judged]


def prepare(network: str, settings: Settings) -> Prepared:
    """Write model and samples, make the rivals, and judge their errors."""
    folder = settings.work / network
    folder.mkdir(parents=True, exist_ok=True)
    model, calibration = folder / f"{network}.onnx", folder / "calibration.npz"
    proto = build(network)
    model.write_bytes(proto.SerializeToString(deterministic=True))
    count = settings.samples
    made_samples.save(made_samples.samples_of(proto, count, made_samples.CALIBRATION), calibration)
    unseen = made_samples.samples_of(proto, count, made_samples.UNSEEN)
    entries, facts = rivals(model, calibration, folder / "rivals", settings.budgets, settings.nncf)
    threads = settings.terms.threads
    expected, _ = run(Entry(_DEFINITION, _DEFINITION, model), unseen, threads)
    judged = judge_errors(entries, unseen, expected, threads)
    return Prepared(model, calibration, unseen, expected, entries, facts, judged)


def judge_budget(network: str, budget: float, prepared: Prepared, settings: Settings) -> dict[str, Any]:
    """Tune for the budget, race what ships, and say everything, JSON-ready.

    Raises
    ------
    TuningError
        It could not be tuned.
    """
    library = library_of(network, budget, settings)
    options = [*settings.options, "--max-error", str(budget), "--calibration", str(prepared.calibration.resolve())]
    tuned = tune(prepared.model, library, library.with_name("records.db"), options)
    return {
        "budget": budget,
        "tune": {"options": options, **tuned.facts},
        "plan": dict(tuned.plan),
        **judge_library(library, budget, prepared, settings),
    }


def library_of(network: str, budget: float, settings: Settings) -> Path:
    """The compiled model of a budget."""
    return settings.work / network / f"{network}-{budget:g}.so"


def judge_library(library: Path, budget: float, prepared: Prepared, settings: Settings) -> dict[str, Any]:
    """Error and race of what shipped for a budget, JSON-ready."""
    ours = Entry(SHIPS, "collage", library)
    found = judge_errors([ours], prepared.unseen, prepared.expected, settings.terms.threads)
    return {"ours": found[SHIPS].as_dict(), **raced(ours, prepared, lambda rival: rival.keeps(budget), settings.terms)}


def raced(ours: Entry, prepared: Prepared, keeps: Any, terms: Terms) -> dict[str, Any]:
    """What ships against those that keep the budget, and against float32."""
    chosen = dict.fromkeys(
        [
            *finalists(prepared.judged, keeps),
            *finalists({n: prepared.judged[n] for n in FLOAT32}, lambda j: not j.reason),
        ]
    )
    entries = [entry for entry in prepared.entries if entry.name in chosen]
    repetitions = race(prepared.model, [*entries, ours], terms, inputs=dict(prepared.unseen[0]))
    kept = [name for name in chosen if keeps(prepared.judged[name])]
    return {**compared(repetitions, kept), "repetitions": [asdict(repetition) for repetition in repetitions]}


def compared(repetitions: Sequence[Repetition], kept: Sequence[str]) -> dict[str, Any]:
    """Ratios of latencies over those of what ships, above 1 where that is faster; {} where it did not run.

    Returns
    -------
    dict
        "rival" and "float32": the fastest of `kept`, those that keep the budget, and of the engines in float32, with
        "ratio", "low" and "high" of each; "medians" in seconds of all that ran.
    """
    names = [name for name in repetitions[0].medians if all(name in each.medians for each in repetitions)]
    rounds = {name: [each.medians[name] for each in repetitions] for name in names}
    medians = {name: sorted(x for each in found for x in each) for name, found in rounds.items()}
    middle = {name: found[len(found) // 2] for name, found in medians.items()}
    found: dict[str, Any] = {"medians": middle}
    if SHIPS not in rounds:
        return found
    for title, several in {"rival": kept, "float32": FLOAT32}.items():
        if there := [name for name in several if name in middle]:
            best = min(there, key=middle.__getitem__)
            interval = ratio_interval(rounds[best], rounds[SHIPS])
            found[title] = {"name": best, "ratio": interval.median, "low": interval.low, "high": interval.high}
    return found


def result_of(network: str, prepared: Prepared, settings: Settings) -> dict[str, Any]:
    """What does not depend on a budget, JSON-ready."""
    return {
        "network": network,
        "held out": network in HELD_OUT,
        "terms": {**asdict(settings.terms), "seeds": list(settings.terms.seeds)},
        "samples": settings.samples,
        "variation": variation(prepared.expected),
        **origin(),
        "made": dict(prepared.facts),
        "rivals": {name: found.as_dict() for name, found in prepared.judged.items()},
        "cells": {},
    }


def judge_network(network: str, settings: Settings, again: bool = False) -> tuple[Path, list[str]]:
    """All budgets that are not in its file yet; or, `again`, what shipped for those that are.

    Returns
    -------
    Path, list of str
        The file, and what failed.
    """
    path = settings.folder / f"{network}.json"
    before = json.loads(path.read_text()) if path.exists() else {"cells": {}}
    left = [budget for budget in settings.budgets if (f"{budget:g}" in before["cells"]) == again]
    failed: list[str] = []
    if not left:
        return path, failed
    prepared = prepare(network, settings)
    result = result_of(network, prepared, settings)
    result["cells"] = before["cells"]
    for budget in left:
        name = f"{budget:g}"
        try:
            if again:
                raced_again = judge_library(library_of(network, budget, settings), budget, prepared, settings)
                cell = {**result["cells"][name], **raced_again}
            else:
                cell = {"commit": result["commit"], **judge_budget(network, budget, prepared, settings)}
        except TuningError as error:
            failed.append(f"{network}, {name}: {error}")
            continue
        result["cells"][name] = cell
        with replacing(path) as partial:
            partial.write_text(json.dumps(result) + "\n")
    return path, failed


def errors_table(network: str, prepared: Prepared) -> str:
    """Errors of the rivals, and what it took to make them, in Markdown."""
    lines = [f"{network}: outputs of different samples differ by {variation(prepared.expected):.3f}", ""]
    lines += ["| rival | error | worst sample | made in | validations |", "|---|---|---|---|---|"]
    for name, found in prepared.judged.items():
        facts = prepared.facts.get(name) or prepared.facts.get(name.removesuffix("-bf16"), {})
        said = [f"{found.error.mean:.4%}", f"{found.error.worst:.4%}"] if found.error else [found.reason, ""]
        took = [f"{facts['seconds']:.0f} s" if "seconds" in facts else "", str(facts.get("validations", ""))]
        lines.append(f"| {' | '.join([name, *said, *took])} |")
    for name, facts in prepared.facts.items():
        if "error" in facts:
            lines.append(f"| {name} | not made: {facts['error']} | | | |")
        elif name not in prepared.judged:
            lines.append(f"| {name} | reverted nothing | | {facts['seconds']:.0f} s | {facts['validations']} |")
    return "\n".join(lines)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Of everything that prepares rivals and races."""
    parser.add_argument("--folder", type=Path, default=Path("build/precision"), help="of the results")
    parser.add_argument("--work", type=Path, default=Path("build/precision-work"), help="of models, rivals, records")
    parser.add_argument("--samples", type=int, default=16, help="that calibrate, and as many that judge")
    parser.add_argument("--nncf-python", default=sys.executable, help="interpreter of an environment with NNCF")
    parser.add_argument("--nncf-limit", type=float, default=3600.0, help="seconds that NNCF may take for one model")
    parser.add_argument("--without-nncf", action="store_true", help="leave out what NNCF makes; said in the results")
    parser.add_argument("--tune", default="", metavar="OPTIONS", help="more options of `collage tune`, in one word")
    parser.add_argument("--threads", type=int, default=Terms().threads)
    parser.add_argument("--rounds", type=int, default=Terms().rounds, help="of each repetition, two at least")
    parser.add_argument("--seconds", type=float, default=Terms().seconds, help="of calls, per contestant and round")
    parser.add_argument("--repetitions", type=int, default=1, help="of each race, each with fresh processes")


def settings_of(parser: argparse.ArgumentParser, options: argparse.Namespace, budgets: Sequence[float]) -> Settings:
    """What those options say."""
    nncf = None if options.without_nncf else Nncf(options.nncf_python, options.nncf_limit)
    if nncf is not None and not has_nncf(nncf):
        parser.error(f"{nncf.python} has no NNCF: pip install '.[bench]', or --nncf-python, or --without-nncf")
    if options.rounds < 2 or options.repetitions < 1 or options.samples < 2:
        parser.error("two rounds, one repetition and two samples at least")
    terms = Terms(options.rounds, options.seconds, tuple(range(options.repetitions)), options.threads)
    return Settings(options.folder, options.work, terms, options.samples, budgets, shlex.split(options.tune), nncf)


def numbers(text: str) -> list[float]:
    """Numbers between commas."""
    return [float(part) for part in text.split(",") if part]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="by default the ten, and the five held out")
    parser.add_argument("--budgets", type=numbers, default=list(BUDGETS), help="errors, between commas")
    parser.add_argument("--only", choices=["prepare", "race"], help="rivals and their errors; or new races")
    add_options(parser)
    options = parser.parse_args(arguments)
    settings = settings_of(parser, options, options.budgets)
    settings.folder.mkdir(parents=True, exist_ok=True)
    failed: list[str] = []
    for network in options.networks or [*WORKLOADS, *HELD_OUT]:
        if options.only == "prepare":
            print(errors_table(network, prepare(network, settings)), flush=True)
            continue
        path, lost = judge_network(network, settings, options.only == "race")
        failed += lost
        print(f"{network}: {path}", *lost, sep="\n", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
