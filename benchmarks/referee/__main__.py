"""The referee on one network: `python -m benchmarks.referee MODEL.onnx [COMPILED.so ...] -o REPORT.json`.

Prints a table and writes what was measured. The first compiled model is what ships; the others run beside it. The exit
status is 1 when what ships is below 0.98 of a rival's speed beyond doubt, gives other numbers, or does not run, and 2
when nothing can be judged.

`--null openvino` races OpenVINO against itself, two processes of one file, and nobody else: how far from 1 the ratio of
equals is on this machine, and how wide its interval. `--null collage` does so with the first compiled model.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.referee.contestant import KINDS
from benchmarks.referee.origin import origin
from benchmarks.referee.process import Entry
from benchmarks.referee.race import Repetition, Terms, race
from benchmarks.referee.verdict import BESIDE, Verdict, judge

#: What a rival of this name needs.
_MODULES = {"torch.compile": "torch", "openvino-default": "openvino"}
RIVALS = tuple(kind for kind in KINDS if kind not in ("collage", "onnxruntime-plain", "openvino-bf16"))


def installed(kinds: Sequence[str] = RIVALS) -> list[str]:
    """Those rivals whose library is installed."""
    return [kind for kind in kinds if find_spec(_MODULES.get(kind, kind)) is not None]


def table(verdict: Verdict) -> Table:
    """Five columns: who, latency, its 95th percentile, speed-up over the best rival, error."""
    result = Table(box=None, pad_edge=False)
    for title in ("contestant", "median, ms", "95th percentile", "speed-up (95% interval)", "error"):
        result.add_column(title, justify="left" if title == "contestant" else "right")
    for name, found in verdict.standings.items():
        speedup = found.speedup
        result.add_row(
            name + (" *" if name in BESIDE else ""),
            f"{found.median * 1e3:.3f}",
            f"{found.percentile * 1e3:.3f}",
            f"{speedup.median:.3f} ({speedup.low:.3f} to {speedup.high:.3f})",
            f"{found.error:.0e}",
        )
    return result


def report(model: Path, terms: Terms, repetitions: Sequence[Repetition], verdict: Verdict) -> dict[str, Any]:
    """Everything, JSON-ready."""
    return {
        "model": model.name,
        "terms": {**asdict(terms), "seeds": list(terms.seeds)},
        **origin(),
        "verdict": verdict.as_dict(),
        "repetitions": [asdict(repetition) for repetition in repetitions],
    }


def show(verdict: Verdict, console: Console) -> None:
    """The table, what its footnotes mean, and the verdict."""
    console.print(table(verdict))
    if BESIDE & set(verdict.standings):
        console.print("* in the precision that OpenVINO chooses (bfloat16 where the processor has it): not a rival")
    for name, reason in verdict.unavailable.items():
        console.print(f"{name} did not run: {reason}", markup=False)
    if verdict.ships is None:
        console.print(f"best: {verdict.best}")
        return
    each = ", ".join(f"{ratio:.3f}" for ratio in verdict.repetitions)
    console.print(f"{'passed' if verdict.passed else 'lost'}: best rival {verdict.best or 'none'}, repetitions {each}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="the user's ONNX file, of static shapes")
    parser.add_argument("compiled", type=Path, nargs="*", help="models compiled by Collage; the first is what ships")
    add_terms(parser)
    parser.add_argument("--repetitions", type=int, default=3, help="each with fresh processes, inputs and order")
    parser.add_argument("--seed", type=int, default=0, help="of the first repetition; the others count on")
    parser.add_argument("--null", choices=list(KINDS), help="race this one against itself, and nobody else")
    parser.add_argument("-o", "--out", type=Path)
    options = parser.parse_args(arguments)
    if missing := [str(path) for path in (options.model, *options.compiled) if not path.is_file()]:
        parser.error(f"no such file: {', '.join(missing)}")
    if options.null == "collage" and not options.compiled:
        parser.error("--null collage needs a compiled model")
    terms = terms_of(parser, options, range(options.seed, options.seed + options.repetitions))
    rivals, ours = entrants(options)
    console = Console(width=None if sys.stdout.isatty() else 120)
    try:
        repetitions = race(options.model, [*rivals, *ours], terms, console.print)
        verdict = judge(repetitions, [entry.name for entry in ours])
    except ValueError as error:
        parser.error(str(error))
    show(verdict, console)
    if options.out:
        options.out.write_text(json.dumps(report(options.model, terms, repetitions, verdict), indent=1) + "\n")
    return 0 if verdict.passed else 1


def entrants(options: argparse.Namespace) -> tuple[list[Entry], list[Entry]]:
    """Rivals, and ours. Of a null race, both are the same."""
    if options.null is not None:
        file = options.compiled[0] if options.null == "collage" else options.model
        once, again = (Entry(name, options.null, file) for name in (options.null, f"{options.null} again"))
        return [once], [again]
    ours = [Entry(f"collage {path.name}", "collage", path) for path in options.compiled]
    if len({entry.name for entry in ours}) < len(ours):
        ours = [Entry(f"collage {path}", "collage", path) for path in options.compiled]
    return [Entry(kind, kind, options.model) for kind in options.rivals.split(",") if kind], ours


def add_terms(parser: argparse.ArgumentParser) -> None:
    """The options of a race."""
    parser.add_argument("--rivals", default=",".join(installed()), help=f"of {', '.join(RIVALS)}; all by default")
    parser.add_argument("--threads", type=int, default=Terms().threads)
    parser.add_argument("--rounds", type=int, default=Terms().rounds, help="of each repetition, two at least")
    parser.add_argument("--seconds", type=float, default=Terms().seconds, help="of calls, per contestant and round")


def terms_of(parser: argparse.ArgumentParser, options: argparse.Namespace, seeds: Sequence[int]) -> Terms:
    """What those options say."""
    if unknown := sorted({kind for kind in options.rivals.split(",") if kind} - set(RIVALS)):
        parser.error(f"no rival is called {', '.join(unknown)}: there are {', '.join(RIVALS)}")
    if options.rounds < 2 or not seeds:
        parser.error("two rounds and one repetition at least")
    return Terms(options.rounds, options.seconds, tuple(seeds), options.threads)


if __name__ == "__main__":
    sys.exit(main())
