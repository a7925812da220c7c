"""Reproducibility of measurements: `python -m benchmarks.repeatability FIRST SECOND [NAME ...]`.

Two logs of the same candidates on the same machine, the first taken for a prediction of the second and scored as cost
models are (`benchmarks.estimators`). No model that learns from such records can be shown to be better than that.
Placements searched with the costs of the first are charged with those of the second, level of the machine aside. With
`--samples` the first has no more of each candidate: what would have been lost by measuring so much less?
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.estimators.networks import Key, Network, recorded_candidates
from benchmarks.estimators.regret import Placements
from benchmarks.estimators.scores import pairwise, score
from benchmarks.workloads import NAMES
from collage.backends.resolve import resolve_backends
from collage.cost.cost import Cost
from estimators.replay import ReplayEstimator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path, help="database or benchmark log")
    parser.add_argument("second", type=Path, help="another one, of the same candidates")
    parser.add_argument("networks", nargs="*", default=list(NAMES), help="of which placements are searched")
    parser.add_argument("--threads", type=int, default=2, help="of the records to use")
    parser.add_argument("--samples", type=int, help="of each candidate of the first log, the first so many")
    options = parser.parse_args()
    first = costs_of(options.first, options.threads, options.samples)
    second = costs_of(options.second, options.threads)
    both = [key for key in second if key in first]
    table = Table("backend", "candidates", "second / first", "median APE", "MAPE", "±10%", "±20%", "Spearman")
    for backend in sorted({name for _, name, _ in both}):
        keys = [key for key in both if key[1] == backend]
        a, b = (np.array([costs[key].seconds for key in keys]) for costs in (first, second))
        level = math.exp(float(np.median(np.log(b / a))))
        s = score(a * level, b)
        shares = [f"{x:.1%}" for x in (s.median_ape, s.mape, s.within_10, s.within_20)]
        table.add_row(backend, f"{s.count}", f"{level:.3f}", *shares, f"{s.spearman:.3f}")
    console = Console(width=120)
    console.print(table)
    predicted, seen = ({key[:2]: costs[key].seconds for key in both} for costs in (first, second))
    pairs = pairwise(predicted, seen, margin=0.05)
    console.print(f"the faster of two backends that differ by more than 5%: {pairs.accuracy:.3f} of {pairs.count}")
    backends = resolve_backends(sorted({backend for _, backend, _ in both}))
    transitions = ReplayEstimator([options.second]).transitions(backends, options.threads)
    regrets = {}
    for name in options.networks:
        network = Network(name, backends, options.threads)
        seen_costs = {key: second[key] for key in dict.fromkeys(network.keys.values()) if key in second}
        predicted_seconds = {key: first[key].seconds if key in first else math.nan for key in seen_costs}
        regrets[name] = Placements(network, seen_costs, transitions).regret(predicted_seconds).additive
        console.print(f"{name}: additive regret {regrets[name]:.3f}")
    worst = max(regrets, key=regrets.__getitem__)
    console.print(f"median {np.median(list(regrets.values())):.3f}, worst {regrets[worst]:.3f} ({worst})")


def costs_of(path: Path, threads: int, samples: int | None = None) -> Mapping[Key, Cost]:
    """The costs of the valid candidates of a database or log; the medians of their first samples, or of all (None)."""
    valid = {key: record for key, record in recorded_candidates([path], threads).items() if record.seconds}
    if samples is None:
        return {key: record.cost for key, record in valid.items()}
    return {key: Cost(float(np.median(record.timings[:samples]))) for key, record in valid.items() if record.timings}


if __name__ == "__main__":
    main()
