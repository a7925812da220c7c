"""Each network left out in turn: the errors of models on it, and the regret of placements by their predictions."""

from __future__ import annotations

import gc
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.estimators.baselines import BASELINES, Model
from benchmarks.estimators.networks import (
    Belongings,
    Key,
    Network,
    groups_of,
    leave_out,
    of_no_network,
    recorded_tuning_seconds,
)
from benchmarks.estimators.regret import Placements, Transitions, end_to_end, partitioning_seconds, predictions
from benchmarks.estimators.results import Outcome, Results
from benchmarks.estimators.scores import pairwise, score, spearman
from collage.records import Record

LEARNED = "learned"
MODELS = (LEARNED, *BASELINES)
#: Networks on which placing by prediction alone is timed.
TIMED = ("resnet50", "bert_base")


@dataclass(frozen=True)
class Evaluation:
    """The inputs of an evaluation.

    Attributes
    ----------
    networks
        All that records are attributed to.
    records
        By structure, backend and composites.
    designed
        Which of them are of designed blocks.
    transitions
        Recorded seconds per ordered pair of backends.
    run
        Whether placements are run end to end as well.
    keep
        Folder that learned models are saved in, by the name of the network that each was trained without.
    results
        Take what is found.
    """

    networks: Sequence[Network | Belongings]
    records: Mapping[Key, Record]
    designed: frozenset[Key]
    transitions: Transitions
    run: bool
    keep: Path | None
    results: Results

    def evaluate(self, tested: Network, models: Sequence[str]) -> None:
        """Leave one network out, for each of the models."""
        fold = leave_out(tested, self.networks, self.records, self.designed)
        wanted = {key: self.records[key] for key in dict.fromkeys(tested.keys.values()) if key in self.records}
        placements = Placements(tested, {key: record.cost for key, record in wanted.items()}, self.transitions)
        write = self.results.write
        write(
            network=tested.name,
            training=len(fold.training),
            test=len(fold.test),
            candidates_with_a_record=placements.share,
            recorded_tuning_s=recorded_tuning_seconds(tested, self.records),
        )
        for name in models:
            model = make(name)
            if name == LEARNED:
                model.fit(fold.training, fold.groups, fold.designed)
                if self.keep is not None:
                    model.save(self.keep / f"{tested.name}.json.gz")
            else:
                model.fit(fold.training)
            self._score(tested, name, model, fold.test)
            predicted = [
                dict(zip(wanted, of.tolist(), strict=True)) for of in predictions(model, list(wanted.values()))
            ]
            self._place(tested, name, placements, *predicted)
            if name == LEARNED and tested.name in TIMED:
                self._time(tested, model)
        write(network=tested.name, done=True)

    def _score(self, tested: Network, name: str, model: Model, test: Sequence[Record]) -> None:
        predicted = np.asarray(model.predict(test), dtype=float)
        interval = getattr(model, "predict_interval", None)
        bounds = interval(test) if interval is not None else None
        seen = np.array([record.seconds for record in test], dtype=float)
        backends = np.array([record.key.backend for record in test])
        for backend in sorted(set(backends)):
            rows = backends == backend
            inside = None if bounds is None else (np.asarray(bounds[0])[rows], np.asarray(bounds[1])[rows])
            found = score(predicted[rows], seen[rows], inside)
            low, high = ([], []) if inside is None else (inside[0].tolist(), inside[1].tolist())
            each = {"predicted": predicted[rows].tolist(), "recorded": seen[rows].tolist(), "low": low, "high": high}
            self.results.write(network=tested.name, model=name, backend=str(backend), **asdict(found), **each)
        of = [(record.key.structure, record.key.backend) for record in test]
        pairs = pairwise(
            dict(zip(of, predicted.tolist(), strict=True)), dict(zip(of, seen.tolist(), strict=True)), margin=0.05
        )
        self.results.write(
            network=tested.name, model=name, pairs=pairs.count, right=pairs.right, pairwise_accuracy=pairs.accuracy
        )

    def _place(
        self,
        tested: Network,
        name: str,
        placements: Placements,
        predicted: Mapping[Key, float],
        spreads: Mapping[Key, float],
    ) -> None:
        regret = placements.regret(predicted, spreads)
        row: dict[str, Any] = {"additive_regret": regret.additive, "same_placement": regret.same}
        if self.run:
            row["end_to_end_regret"] = end_to_end(tested, regret.predicted.candidates, regret.recorded.candidates)
        self.results.write(network=tested.name, model=name, **row)

    def _time(self, tested: Network, model: Model) -> None:
        measured = recorded_tuning_seconds(tested, self.records)
        # Who places a network has not read fifty thousand records, which the garbage collector would go through.
        gc.collect()
        gc.freeze()
        steps = partitioning_seconds(tested.module, tested.backends, tested.threads, model, self.transitions)
        gc.unfreeze()
        self.results.write(
            network=tested.name, placing_by_prediction_s=steps, tuning_over_placing=measured / steps["total"]
        )


def make(name: str) -> Any:
    """An untrained model; the learned one is imported only where it is wanted."""
    if name != LEARNED:
        return BASELINES[name]()
    from estimators.cost_model.model import CostModel

    return CostModel()


def ship(
    path: Path, records: Mapping[Key, Record], designed: frozenset[Key], networks: Sequence[Network | Belongings]
) -> None:
    """Train the learned model on everything, and save it."""
    groups = groups_of(records.values(), networks)
    make(LEARNED).fit(list(records.values()), groups, of_no_network(records, groups, designed)).save(path)


def accuracy_table(outcomes: Mapping[str, Outcome]) -> Table:
    """A row per backend and model, over all tested networks."""
    columns = ("median APE", "MAPE", "±10%", "±20%", "Spearman", "in 90% interval")
    table = Table("backend", "model", "candidates", *columns, title="Left-out networks")
    for backend in sorted({backend for found in outcomes.values() for backend in found.recorded}):
        for name, found in outcomes.items():
            interval = (found.low[backend], found.high[backend]) if backend in found.low else None
            s = score(found.predicted[backend], found.recorded[backend], interval)
            shares = [_share(x) for x in (s.median_ape, s.mape, s.within_10, s.within_20)]
            table.add_row(backend, name, f"{s.count}", *shares, f"{s.spearman:.3f}", _share(s.coverage))
    return table


def ranking(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Network -> model -> Spearman's rank correlation over the candidates of all backends, of rows of results."""
    predicted: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        if row.get("predicted"):
            both = zip(row["predicted"], row["recorded"], strict=True)
            predicted[row["network"], row["model"]] += [(a, b) for a, b in both if a is not None]
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for (network, model), pairs in predicted.items():
        found[network][model] = spearman([a for a, _ in pairs], [b for _, b in pairs])
    return dict(found)


def ranking_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """A row per network: how well each model orders its candidates."""
    found = ranking(rows)
    models = list(dict.fromkeys(model for of in found.values() for model in of))
    table = Table("network", *models, title="Spearman, candidates of all backends")
    for network, of in found.items():
        table.add_row(network, *(f"{of[model]:.3f}" if model in of else "" for model in models))
    return table


def placement_table(outcomes: Mapping[str, Outcome]) -> Table:
    """A row per model: which backend wins, and the regret of placements."""
    table = Table(
        "model", "pairs", "right", "regret, median", "worst", "end to end, median", "worst", title="Placement"
    )
    for name, found in outcomes.items():
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
