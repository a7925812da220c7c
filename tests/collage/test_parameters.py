"""Parameters of searchers and estimators that are given by name, in Python and on the command line."""

from __future__ import annotations

import pytest
import typer

from collage.choose import create_both
from collage.cli.options import parse_parameters
from collage.errors import PluginError
from searchers.dijkstra import DijkstraSearcher


def test_each_takes_the_parameters_that_it_knows() -> None:
    searcher, estimator = create_both("dijkstra", "cached", {"max_states": 7, "device": "other"}, {"records": "r.db"})
    assert searcher.max_states == 7
    assert (estimator.device, estimator.records) == ("other", "r.db")


def test_a_parameter_that_neither_knows_is_an_error_that_lists_those_there_are() -> None:
    with pytest.raises(PluginError, match=r"dijkstra or cached has no parameter widht; known: .*max_states"):
        create_both("dijkstra", "cached", {"widht": 3}, {})


def test_instances_stay_as_they_are_and_take_no_parameters() -> None:
    mine = DijkstraSearcher(max_states=3)
    assert create_both(mine, "cached", {}, {})[0] is mine
    with pytest.raises(PluginError, match="has no parameter max_states"):
        create_both(mine, "cached", {"max_states": 3}, {})


def test_values_are_json_where_they_read_like_it() -> None:
    texts = ["width=64", "time_limit_s=1.5", "model=cost.json", "limit=null", "name=a=b"]
    expected = {"width": 64, "time_limit_s": 1.5, "model": "cost.json", "limit": None, "name": "a=b"}
    assert parse_parameters(texts) == expected


@pytest.mark.parametrize("texts", [["width"], ["=3"], ["wi dth=3"], ["width=1", "width=2"]])
def test_what_does_not_read_like_a_parameter_is_refused(texts: list[str]) -> None:
    with pytest.raises(typer.BadParameter):
        parse_parameters(texts)
