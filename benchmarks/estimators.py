"""Cost models on networks that they have not seen: `python -m benchmarks.estimators [NAME ...] --records PATH ...`.

Each network in turn is left out: a model is trained on the records of the others, and told what the left-out network's
candidates take. The table compares the learned model with the roofline alone, a ridge regression on the same features
and the nearest recorded neighbour; MAPE is the mean absolute percentage error. Then placements are searched with the
told costs, and charged with the recorded ones (`--end-to-end` runs both placements by turns). Goals: regret of at most
1.03 in the median and 1.10 at worst, and under 2 s for placing ResNet-50 and BERT by prediction alone.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.estimator_baselines import BASELINES, Model
from benchmarks.estimator_networks import Key, Network, leave_out, read_records, recorded_tuning_seconds
from benchmarks.estimator_regret import Placements, Transitions, end_to_end, partitioning_seconds
from benchmarks.estimator_scores import Pairs, pairwise, score
from benchmarks.workloads import NAMES
from collage.errors import CollageError
from collage.partitioner import resolve_backends
from collage.records import Record
from collage.runtime.threads import configure_threads
from estimators.replay import ReplayEstimator

LEARNED = "learned"
MODELS = (LEARNED, *BASELINES)
#: Networks on which placing by prediction alone is timed.
TIMED = ("resnet50", "bert_base")


@dataclass
class Told:
    """What one model told of all tested networks, and how its placements did."""

    predicted: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    recorded: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    low: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    high: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    pairs: Pairs = field(default_factory=lambda: Pairs(0, 0))
    regrets: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluation:
    """The inputs of an evaluation.

    Attributes
    ----------
    networks: all that records are attributed to.
    records: by structure, backend and composites.
    transitions: recorded seconds per ordered pair of backends.
    run: whether placements are run end to end as well.
    out: takes one JSON object per line.
    """

    networks: Sequence[Network]
    records: Mapping[Key, Record]
    transitions: Transitions
    run: bool
    out: TextIO

    def evaluate(self, tested: Network, models: Sequence[str], told: Mapping[str, Told]) -> None:
        """Leave one network out, for each of the models."""
        fold = leave_out(tested, self.networks, self.records)
        wanted = {key: self.records[key] for key in dict.fromkeys(tested.keys.values()) if key in self.records}
        placements = Placements(tested, {key: record.cost for key, record in wanted.items()}, self.transitions)
        self._write(
            network=tested.name,
            training=len(fold.training),
            test=len(fold.test),
            candidates_with_a_record=placements.share,
            recorded_tuning_s=recorded_tuning_seconds(tested, self.records),
        )
        for name in models:
            model = make(name)
            model.fit(fold.training)
            self._score(tested, name, model, fold.test, told[name])
            seconds = np.asarray(model.predict(list(wanted.values())), dtype=float)
            self._place(tested, name, placements, dict(zip(wanted, seconds.tolist(), strict=True)), told[name])
            if name == LEARNED and tested.name in TIMED:
                self._time(tested, model)

    def _score(self, tested: Network, name: str, model: Model, test: Sequence[Record], told: Told) -> None:
        predicted = np.asarray(model.predict(test), dtype=float)
        interval = getattr(model, "predict_interval", None)
        bounds = interval(test) if interval is not None else None
        seen = np.array([record.seconds for record in test], dtype=float)
        backends = np.array([record.key.backend for record in test])
        for backend in sorted(set(backends)):
            rows = backends == backend
            inside = None if bounds is None else (np.asarray(bounds[0])[rows], np.asarray(bounds[1])[rows])
            found = score(predicted[rows], seen[rows], inside)
            self._write(network=tested.name, model=name, backend=str(backend), **asdict(found))
            told.predicted[backend] += predicted[rows].tolist()
            told.recorded[backend] += seen[rows].tolist()
            if inside is not None:
                told.low[backend] += inside[0].tolist()
                told.high[backend] += inside[1].tolist()
        of = [(record.key.structure, record.key.backend) for record in test]
        pairs = pairwise(
            dict(zip(of, predicted.tolist(), strict=True)), dict(zip(of, seen.tolist(), strict=True)), margin=0.05
        )
        told.pairs += pairs
        self._write(network=tested.name, model=name, pairs=pairs.count, pairwise_accuracy=pairs.accuracy)

    def _place(
        self, tested: Network, name: str, placements: Placements, predicted: Mapping[Key, float], told: Told
    ) -> None:
        regret = placements.regret(predicted)
        told.regrets[tested.name] = regret.additive
        row: dict[str, Any] = {"additive_regret": regret.additive, "same_placement": regret.same}
        if self.run:
            ratio = end_to_end(tested, regret)
            told.ratios[tested.name] = ratio[0]
            row["end_to_end_regret"] = ratio
        self._write(network=tested.name, model=name, **row)

    def _time(self, tested: Network, model: Model) -> None:
        measured = recorded_tuning_seconds(tested, self.records)
        steps = partitioning_seconds(tested.module, tested.backends, tested.threads, model, self.transitions)
        self._write(network=tested.name, placing_by_prediction_s=steps, tuning_over_placing=measured / steps["total"])

    def _write(self, **row: Any) -> None:
        self.out.write(json.dumps(_finite(row)) + "\n")
        self.out.flush()


def make(name: str) -> Model:
    """An untrained model; the learned one is imported only where it is wanted."""
    if name != LEARNED:
        return BASELINES[name]()
    from estimators.cost_model import CostModel

    model: Model = CostModel()
    return model


def accuracy_table(told: Mapping[str, Told]) -> Table:
    """A row per backend and model, over all tested networks."""
    columns = ("median APE", "MAPE", "±10%", "±20%", "Spearman", "in 90% interval")
    table = Table("backend", "model", "candidates", *columns, title="Left-out networks")
    for backend in sorted({backend for found in told.values() for backend in found.recorded}):
        for name, found in told.items():
            interval = (found.low[backend], found.high[backend]) if backend in found.low else None
            s = score(found.predicted[backend], found.recorded[backend], interval)
            shares = [_share(x) for x in (s.median_ape, s.mape, s.within_10, s.within_20)]
            table.add_row(backend, name, f"{s.count}", *shares, f"{s.spearman:.3f}", _share(s.coverage))
    return table


def placement_table(told: Mapping[str, Told]) -> Table:
    """A row per model: which backend wins, and the regret of placements."""
    table = Table(
        "model", "pairs", "right", "regret, median", "worst", "end to end, median", "worst", title="Placement"
    )
    for name, found in told.items():
        cells = []
        for regrets in (found.regrets, found.ratios):
            worst = max(regrets, key=regrets.__getitem__, default="")
            cells += (
                [f"{np.median(list(regrets.values())):.3f}", f"{regrets[worst]:.3f} ({worst})"] if worst else ["", ""]
            )
        table.add_row(name, f"{found.pairs.count}", _share(found.pairs.accuracy), *cells)
    return table


def _share(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.1%}"


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: null, and "infinite"."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "infinite"
    return value


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks to leave out, one by one; all by default")
    parser.add_argument("--among", default=",".join(NAMES), help="networks that the records are of (default: all ten)")
    parser.add_argument("--records", type=Path, nargs="+", required=True, help="databases and benchmark logs")
    parser.add_argument("--models", default=",".join(MODELS), help=f"of {', '.join(MODELS)}")
    parser.add_argument("--threads", type=int, default=2, help="of the records to use")
    parser.add_argument("--end-to-end", action="store_true", help="run the placements too")
    parser.add_argument("--out", type=Path, default=Path("build/estimators.jsonl"), help="rows as JSON lines")
    options = parser.parse_args(arguments)
    models = options.models.split(",")
    if unknown := sorted(set(models) - set(MODELS)):
        parser.error(f"no model is called {', '.join(unknown)}: there are {', '.join(MODELS)}")
    among = list(dict.fromkeys([*options.among.split(","), *options.names]))
    console = Console(width=None if sys.stdout.isatty() else 120)  # in a file, tables need no wrapping
    configure_threads(options.threads)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    told = {name: Told() for name in models}
    try:
        records = read_records(options.records, options.threads)
        backends = resolve_backends(sorted({backend for _, backend, _ in records}))
        transitions = ReplayEstimator(options.records).transitions(backends, options.threads)
        networks = [Network(name, backends, options.threads) for name in among]
        with options.out.open("w") as out:
            evaluation = Evaluation(networks, records, transitions, options.end_to_end, out)
            for network in networks:
                if network.name in (options.names or among):
                    evaluation.evaluate(network, models, told)
                    console.print(f"{network.name}: done")
    except (CollageError, ValueError) as error:
        parser.error(str(error))
    console.print(accuracy_table(told))
    console.print(placement_table(told))
    for row in map(json.loads, options.out.read_text().splitlines()):
        if steps := row.get("placing_by_prediction_s"):
            parts = ", ".join(f"{step} {seconds:.2f} s" for step, seconds in steps.items())
            console.print(
                f"{row['network']} by prediction: {parts}; measuring took {row['tuning_over_placing']:.0f} times"
            )


if __name__ == "__main__":
    main()
