"""Tunes two operators, says how many candidates it measured and what it chose: a process for the tests to disturb.

    python -m tests.e2e.tune_small RECORDS [confirm]

The right choice is beyond doubt: the other backend is far slower.
"""

# ruff: noqa: E402 (TVM comes up without PyTorch: this process is started again and again)

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

from collage.without_torch import import_tvm_without_torch

import_tvm_without_torch()

import collage
from collage.cost.transition import Pair, Transition
from collage.progress import Reporter
from collage.records import Record, RecordDatabase
from estimators.measured import MeasuredEstimator
from tests.e2e import faulty
from tests.e2e.efforts import EVERYTHING
from tests.e2e.networks import convolution_relu


class CountingDatabase(RecordDatabase):
    """Counts candidates as they are written."""

    written = 0

    def put_many(self, batch: Iterable[Record]) -> int:
        records = list(batch)
        CountingDatabase.written += sum(record.key.kind == "candidate" for record in records)
        return super().put_many(records)


class Stages(Reporter):
    """Says what begins."""

    def stage(self, name: str, total: int | None = None) -> None:
        print("stage:", name, flush=True)


class CandidatesOnly(MeasuredEstimator):
    """Measures no changes of backend."""

    def transitions(self, backends: Sequence[str], threads: int) -> Mapping[Pair, Transition]:
        return {}


if __name__ == "__main__":
    records = sys.argv[1]
    with CountingDatabase(records) as database:
        plan = collage.partition(
            convolution_relu(),
            [faulty.Slow(), "onnxruntime"],
            estimator=CandidatesOnly(records=database),
            records=records,
            threads=1,
            effort=EVERYTHING,
            confirm_end_to_end="confirm" in sys.argv,
            reporter=Stages(),
        )
    print("placement:", [(p.backend, p.nodes) for p in plan.partitions])
    print("notes:", plan.notes)
    print("measured:", CountingDatabase.written)
