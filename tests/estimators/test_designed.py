"""Designed blocks teach, but how sure a model is of a network is learned from networks."""

import numpy as np
import pytest

from collage.records import Record
from estimators.cost_model.fit import _folds, fit_backend
from estimators.features.batch import FeatureTable

NETWORKS = 6


@pytest.fixture(scope="module")
def designed(measured: list[Record]) -> np.ndarray:
    """Every third."""
    return np.arange(len(measured)) % 3 == 0


@pytest.fixture(scope="module")
def groups(designed: np.ndarray) -> np.ndarray:
    return np.where(designed, -1, np.arange(len(designed)) * NETWORKS // len(designed))


def test_networks_and_designed_blocks_are_left_out_in_turns(designed: np.ndarray, groups: np.ndarray) -> None:
    folds = _folds(groups, designed)
    assert len(folds) == NETWORKS
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(len(groups)))
    for train, test in folds:
        assert not set(train) & set(test)
        assert not set(groups[train][~designed[train]]) & set(groups[test][~designed[test]])
        assert designed[train].any() and designed[test].any()


@pytest.mark.parametrize("networks", [0, 1])
def test_there_are_folds_with_hardly_a_network(networks: int, designed: np.ndarray) -> None:
    groups = np.where(designed, -1, 0) if networks else np.full(len(designed), -1)
    folds = _folds(groups, designed if networks else designed | True)
    assert len(folds) == 2 and all(len(train) and len(test) for train, test in folds)


def test_errors_on_designed_blocks_do_not_widen_the_intervals_of_networks(
    table: FeatureTable, designed: np.ndarray, groups: np.ndarray
) -> None:
    generator = np.random.default_rng(0)
    latencies = np.log(table.roofline) + np.where(designed, 0.8, 0.1) * generator.normal(size=len(designed))
    ones = np.ones(len(designed))
    settings = {"seed": 0, "nthread": 1}
    _, held = fit_backend(table, latencies, ones, groups, designed, 30, 0.9, settings)
    inside = np.abs(latencies - held.log_seconds) <= held.half_widths
    assert 0.87 <= inside[~designed].mean() <= 0.93
    assert inside[designed].mean() < 0.8
