"""Cost models on networks that they have not seen: `python -m benchmarks.estimators [NAME ...] --records PATH ...`.

Each network in turn is left out: a model is trained on the records of the others, and predicts the latencies of the
left-out network's candidates. The table compares the learned model with the roofline alone, a ridge regression on the
same features and the nearest recorded neighbour; MAPE is the mean absolute percentage error. How well candidates of
each network are ordered is told beside (Spearman), and `benchmarks.estimators.ceiling` tells what a perfect model would
reach against the same truth. Then placements are searched with the predicted costs, and charged with the recorded ones
(`--end-to-end`, on the machine of the records, runs both placements interleaved; what is shipped after confirmation is
compared by `benchmarks.estimators.shipped`). Goals: regret of at most 1.03 in the median and 1.10 at worst, and under
2 s for placing ResNet-50 and BERT by prediction alone.

What was found is written network by network (`--out`), and the same command goes on where it was interrupted.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.estimators.evaluation import MODELS, Evaluation, accuracy_table, placement_table, ranking_table, ship
from benchmarks.estimators.networks import ELSEWHERE, Key, Network, belongings_of, measured_here, recorded_candidates
from benchmarks.estimators.results import Results, read_rows
from benchmarks.workloads import NAMES
from collage.backends.resolve import resolve_backends
from collage.errors import CollageError
from collage.records import Record
from collage.runtime.threads import configure_threads
from estimators.replay import ReplayEstimator


def _settings(
    threads: int,
    models: Sequence[str],
    among: Sequence[str],
    records: Mapping[Key, Record],
    designed: int,
    run: bool,
) -> dict[str, Any]:
    """What has to be the same for results to be continued."""
    seen = sorted(f"{record.key.digest} {record.seconds!r}" for record in records.values())
    digest = hashlib.sha256("\n".join(seen).encode()).hexdigest()[:16]
    return {
        "models": list(models),
        "among": list(among),
        "records": len(records),
        "designed": designed,
        "digest": digest,
        "threads": threads,
        "end_to_end": run,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks to leave out, one by one; all by default")
    parser.add_argument("--among", default=",".join(NAMES), help="networks that the records are of (default: all ten)")
    parser.add_argument("--records", type=Path, nargs="+", required=True, help="databases and benchmark logs")
    parser.add_argument("--designed", type=Path, nargs="+", default=[], help="those of designed blocks")
    parser.add_argument(
        "--networks", type=Path, default=Path("build/networks.json"), help="cache of what belongs to each network"
    )
    parser.add_argument("--ship", type=Path, help="also train the learned model on all records, and save it here")
    parser.add_argument("--models", default=",".join(MODELS), help=f"of {', '.join(MODELS)}")
    parser.add_argument("--threads", type=int, default=2, help="of the records to use")
    parser.add_argument("--end-to-end", action="store_true", help="run the placements too")
    parser.add_argument("--keep", type=Path, help="folder to save the learned models in (for `benchmarks.active`)")
    parser.add_argument("--beside", type=Path, help="results of other models (an earlier --out), for Spearman's table")
    parser.add_argument("--out", type=Path, default=Path("build/estimators.jsonl"), help="rows as JSON lines")
    options = parser.parse_args(arguments)
    models = options.models.split(",")
    if unknown := sorted(set(models) - set(MODELS)):
        parser.error(f"no model is called {', '.join(unknown)}: there are {', '.join(MODELS)}")
    among = list(dict.fromkeys([*options.among.split(","), *options.names]))
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if sys.stdout.isatty() else 120)  # in a file, tables need no wrapping
    configure_threads(options.threads)
    try:
        records = recorded_candidates([*options.records, *options.designed], options.threads)
        designed = (
            frozenset(recorded_candidates(options.designed, options.threads)) if options.designed else frozenset()
        )
        backends = resolve_backends(sorted({backend for _, backend, _ in records}))
        transitions = ReplayEstimator(options.records).transitions(backends, options.threads)
        run = options.end_to_end and measured_here(records)
        settings = _settings(options.threads, models, among, records, len(designed), run)
        results = Results(options.out, settings)
        wanted = [name for name in options.names or among if name not in results.done]
        built = {}
        networks = []
        for name in among if wanted or options.ship else ():
            belongings, network = belongings_of(name, backends, options.threads, options.networks)
            networks.append(belongings)
            if network is not None and name in wanted:
                built[name] = network
        evaluation = Evaluation(networks, records, designed, transitions, run, options.keep, results)
        for name in wanted:
            tested = built.pop(name) if name in built else Network(name, backends, options.threads)
            evaluation.evaluate(tested, models)
            console.print(f"{name}: done")
        if options.ship:
            ship(options.ship, records, designed, networks)
    except (CollageError, ValueError) as error:
        parser.error(str(error))
    outcomes = results.outcomes(models)
    console.print(accuracy_table(outcomes))
    console.print(ranking_table([*results.rows, *(read_rows(options.beside) if options.beside else [])]))
    console.print(placement_table(outcomes))
    if options.end_to_end and not run:
        console.print(ELSEWHERE)
    for row in results.rows:
        if steps := row.get("placing_by_prediction_s"):
            parts = ", ".join(f"{step} {seconds:.2f} s" for step, seconds in steps.items())
            console.print(
                f"{row['network']} by prediction: {parts}; measuring took {row['tuning_over_placing']:.0f} times"
            )


if __name__ == "__main__":
    main()
