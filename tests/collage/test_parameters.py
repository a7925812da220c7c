"""Parameters of searchers and estimators that are given by name, in Python and on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from collage import plugins
from collage.api.partitioner import partition
from collage.cli.options import parse_parameters
from collage.cost.estimator import CostEstimator
from collage.errors import PluginError
from collage.progress import Reporter
from collage.records import RecordDatabase
from collage.search import Partitioning, Searcher, SearchProblem
from estimators.active import ActiveEstimator
from estimators.cached import CachedEstimator
from estimators.learned import LearnedEstimator
from estimators.measured import MeasuredEstimator
from estimators.replay import ReplayEstimator
from searchers.dijkstra import DijkstraSearcher


def test_a_parameter_that_is_not_known_is_an_error_that_lists_those_there_are() -> None:
    with pytest.raises(PluginError, match=r"the searcher dijkstra has no parameter widht; known: .*max_states"):
        partition("no.onnx", ["tvm"], "dijkstra", "cached", searcher_parameters={"widht": 3})


def test_a_parameter_reaches_the_plugin_that_it_is_meant_for_only() -> None:
    with pytest.raises(PluginError, match=r"the estimator cached has no parameter max_states"):
        partition("no.onnx", ["tvm"], "dijkstra", "cached", estimator_parameters={"max_states": 3})


def test_a_constructor_that_refuses_its_parameters_is_named() -> None:
    class Refusing(Searcher):
        def __init__(self, width: int) -> None:
            raise ValueError("too narrow")

        def search(self, problem: SearchProblem) -> Partitioning:
            raise NotImplementedError

    with pytest.raises(PluginError, match="the searcher Refusing cannot be made: too narrow"):
        plugins.load("searchers", Refusing, width=1)


def test_instances_stay_as_they_are_and_take_no_parameters() -> None:
    mine = DijkstraSearcher(max_states=3)
    assert plugins.load("searchers", mine) is mine
    with pytest.raises(PluginError, match="made already: give it max_states when making it"):
        partition("no.onnx", ["tvm"], mine, "cached", searcher_parameters={"max_states": 3})


@pytest.mark.parametrize("make", [MeasuredEstimator, CachedEstimator, ReplayEstimator, ActiveEstimator])
def test_an_estimator_takes_the_database_of_the_run_unless_it_has_one(
    make: type[CostEstimator], tmp_path: Path
) -> None:
    reporter = Reporter()
    with RecordDatabase(tmp_path / "run.db") as run, RecordDatabase(tmp_path / "own.db") as own:
        assert make().bind(run, reporter).get_params()["records"] is run
        assert make(records=own).bind(run, reporter).get_params()["records"] is own


def test_an_estimator_binds_the_one_that_it_wraps(tmp_path: Path) -> None:
    with RecordDatabase(tmp_path / "run.db") as run:
        for wrapping in (
            CachedEstimator(fallback=MeasuredEstimator()),
            ReplayEstimator(fallback=MeasuredEstimator()),
            LearnedEstimator(fallback=MeasuredEstimator()),
        ):
            assert wrapping.bind(run, Reporter()).get_params()["fallback"].records is run
        bound = ActiveEstimator(measured=CachedEstimator()).bind(run, Reporter())
        assert bound.get_params()["measured"].records is run


def test_values_are_json_where_they_read_like_it() -> None:
    texts = ["searcher.width=64", "estimator.time_limit_s=1.5", "estimator.model=cost.json", "searcher.limit=null"]
    expected = {
        "searcher": {"width": 64, "limit": None, "name": "a=b"},
        "estimator": {"time_limit_s": 1.5, "model": "cost.json"},
    }
    assert parse_parameters([*texts, "searcher.name=a=b"]) == expected


@pytest.mark.parametrize(
    "texts",
    [
        ["searcher.width"],
        ["=3"],
        ["width=3"],
        ["backend.width=3"],
        ["searcher.wi dth=3"],
        ["searcher.width=1", "searcher.width=2"],
    ],
)
def test_what_does_not_read_like_a_parameter_is_refused(texts: list[str]) -> None:
    with pytest.raises(typer.BadParameter):
        parse_parameters(texts)
