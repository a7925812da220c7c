"""One tuned network, shared by the end-to-end tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import collage
from benchmarks.workloads import build
from tests.e2e.efforts import EVERYTHING


@dataclass(frozen=True)
class Tuned:
    """A model, its canonical module, the plan found for it, and the records of the search."""

    model: Any
    module: Any
    plan: Any
    records: Path


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    records = tmp_path_factory.mktemp("tuned") / "records.db"
    model = build("tiny_resnet")
    module = collage.load(model)
    return Tuned(model, module, collage.partition(module, records=records, effort=EVERYTHING), records)
