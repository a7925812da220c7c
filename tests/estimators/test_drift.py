"""The drift of a machine is taken out of designed blocks' records, and of nothing else."""

import numpy as np
import pytest

from collage.records import Record
from estimators.cost_model.analytic import Analytic
from estimators.cost_model.data.drift import without_drift
from estimators.cost_model.data.training_set import training_set
from estimators.cost_model.model import CostModel
from estimators.features.batch import FeatureTable

SETTINGS = {"seed": 0, "nthread": 1}


@pytest.fixture(scope="module")
def steady(table: FeatureTable, measured: list[Record]) -> np.ndarray:
    """Log seconds on a machine that does not drift: what the analytic part says, and some noise."""
    analytic = Analytic.fit(table.work, np.log([r.seconds for r in measured]), np.ones(len(measured)))
    return analytic.predict(table.work)[0] + np.random.default_rng(0).normal(0.0, 0.1, len(measured))


def mixed(count: int) -> np.ndarray:
    """Every other one is designed: then both have all kinds of work."""
    return np.arange(count) % 2 == 1


def test_a_slower_hour_is_taken_out(table: FeatureTable, steady: np.ndarray) -> None:
    designed = mixed(len(steady))
    hour = np.where(np.arange(len(steady)) < len(steady) // 2, 0.4, 0.9)
    seen = steady + designed * hour
    found = without_drift(table, seen, np.ones(len(seen)), designed, SETTINGS)
    assert np.array_equal(found[~designed], steady[~designed])
    assert np.median(np.abs(found - steady)[designed]) < 0.15 < np.median(np.abs(seen - steady)[designed])
    assert abs(np.mean((found - steady)[designed])) < 0.1


def test_so_is_what_small_workloads_suffer_more(table: FeatureTable, steady: np.ndarray) -> None:
    designed = mixed(len(steady))
    seen = steady + designed * (0.5 - 0.2 * (steady - np.median(steady)))
    found = without_drift(table, seen, np.ones(len(seen)), designed, SETTINGS)
    assert abs(np.polyfit(steady[designed], (found - steady)[designed], 1)[0]) < 0.08


def test_a_steady_machine_stays_as_it_is(table: FeatureTable, steady: np.ndarray) -> None:
    designed = mixed(len(steady))
    assert np.array_equal(without_drift(table, steady, np.ones(len(steady)), designed, SETTINGS), steady)


def test_without_networks_there_is_no_measure_for_drift(table: FeatureTable, steady: np.ndarray) -> None:
    ones = np.ones(len(steady))
    assert np.array_equal(without_drift(table, steady, ones, ones > 0, SETTINGS), steady)
    assert np.array_equal(without_drift(table, steady, ones, ones == 0, SETTINGS), steady)


def test_designed_blocks_are_one_group(measured: list[Record]) -> None:
    marks = mixed(len(measured)).tolist()
    plain, marked = training_set(measured), training_set(measured, designed=marks)
    assert marked.designed.sum() == sum(marks)
    assert set(marked.groups[marked.designed]) == {-1} and -1 not in marked.groups[~marked.designed]
    assert marked.weights == pytest.approx(plain.weights)


def test_a_model_learns_from_both_alike(measured: list[Record]) -> None:
    marks = mixed(len(measured)).tolist()
    model = CostModel(rounds=10, threads=1).fit(measured, designed=marks)
    assert model.training_["designed"] == sum(marks)
    assert np.isfinite(model.predict(measured)).all()
