"""Records of real networks, of which several modules learn."""

from pathlib import Path

import pytest

from collage.records import Record, read_log
from estimators.features.batch import FeatureTable, Roofline, Task, features_of

LOG = Path(__file__).parent / "data" / "records.jsonl.gz"


@pytest.fixture(scope="session")
def measured() -> list[Record]:
    """The valid ones."""
    return [r for r in read_log(LOG) if r.status == "ok"]


@pytest.fixture(scope="session")
def table(measured: list[Record]) -> FeatureTable:
    """Their features."""
    tasks = [Task(r.key.structure, r.description, r.key.composites, r.key.threads) for r in measured]
    return features_of(tasks, Roofline.of(measured[0].device))
