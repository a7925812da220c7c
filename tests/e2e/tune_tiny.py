"""Tunes a small network and says how many candidates it measured: a process for the tests to kill."""

from __future__ import annotations

import sys

import collage
from benchmarks.workloads import build
from collage.records import Record, RecordDatabase


class CountingDatabase(RecordDatabase):
    """Counts candidates as they are written."""

    written = 0

    def put(self, record: Record) -> None:
        super().put(record)
        CountingDatabase.written += record.key.kind == "candidate"


if __name__ == "__main__":
    from estimators.measured import MeasuredEstimator

    with CountingDatabase(sys.argv[1]) as database:
        estimator = MeasuredEstimator(records=database)
        collage.partition(
            build("tiny_resnet"), ["onnxruntime", "openvino"], estimator=estimator, records=sys.argv[1], threads=1
        )
    print(f"measured: {CountingDatabase.written}")
