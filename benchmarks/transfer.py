"""How well a cost model carries over to another machine: `python -m benchmarks.transfer LOG [--model FILE]`.

The log is of another machine, or of another number of threads, which is another machine to a model. Some of its records
calibrate the model (`collage train --calibrate`), the others score it, before and after; the same for several draws.
"""

from __future__ import annotations

import argparse
import copy
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.estimators.networks import recorded_candidates
from benchmarks.estimators.scores import Scores, score
from collage.records import Record
from estimators.cost_model.model import CostModel
from estimators.cost_model.shipped import shipped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path, help="database or benchmark log of the other machine")
    parser.add_argument("--model", type=Path, help="cost model; the one that ships for the log's machine by default")
    parser.add_argument("--threads", type=int, default=1, help="of the records to use")
    parser.add_argument("--count", type=int, default=60, help="records to calibrate with")
    parser.add_argument("--draws", type=int, default=10, help="of these records")
    options = parser.parse_args()
    records = [record for record in recorded_candidates([options.log], options.threads).values() if record.seconds]
    model = shipped(records[0].device) if options.model is None else CostModel.load(options.model)
    drawn = [transfer(model, records, options.count, seed) for seed in range(options.draws)]
    title = f"{options.count} of {len(records)} records, means of {options.draws} draws"
    table = Table("model", "median APE", "MAPE", "in 90% interval", title=title)
    for name, scores in zip(("as it was", "calibrated"), zip(*drawn, strict=True), strict=True):
        means = (np.mean([getattr(s, field) for s in scores]) for field in ("median_ape", "mape", "coverage"))
        table.add_row(name, *(f"{mean:.1%}" for mean in means))
    Console(width=120).print(table)


def transfer(model: CostModel, records: Sequence[Record], count: int, seed: int) -> tuple[Scores, Scores]:
    """The scores of a model on records, without and with a calibration by some `count` of them, which are not scored.

    All records of a structure are in one part.
    """
    structures = sorted({record.key.structure for record in records})
    random.Random(seed).shuffle(structures)
    calibrating: list[Record] = []
    scored: list[Record] = []
    for structure in structures:
        part = calibrating if len(calibrating) < count else scored
        part.extend(record for record in records if record.key.structure == structure)
    as_it_was = copy.copy(model)
    as_it_was.device_ = records[0].key.device  # as if it were at home
    return _score(as_it_was, scored), _score(model.calibrated(calibrating), scored)


def _score(model: CostModel, records: Sequence[Record]) -> Scores:
    seen = np.array([record.seconds for record in records], dtype=float)
    return score(model.predict(records), seen, model.predict_interval(records))


if __name__ == "__main__":
    main()
