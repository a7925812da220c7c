"""The results of an evaluation survive an interruption, and are not mixed with those of other records."""

import json
import math
from pathlib import Path

import pytest

from benchmarks.estimators.results import Results
from collage.errors import CollageError

SETTINGS = {"models": ["learned"], "digest": "0"}


def written(path: Path) -> Results:
    """One network that is complete, and one that is not."""
    results = Results(path, SETTINGS)
    for name in ("a", "b"):
        numbers = {"predicted": [1.0, math.nan], "recorded": [2.0, 3.0]}
        results.write(network=name, model="learned", backend="tvm", **numbers)
        results.write(network=name, model="learned", pairs=4, right=3)
        results.write(network=name, model="learned", additive_regret=math.inf if name == "a" else 1.5)
        if name == "a":
            results.write(network=name, done=True)
    return results


def test_only_networks_that_are_complete_count(tmp_path: Path) -> None:
    results = written(tmp_path / "out.jsonl")
    assert results.done == {"a"}
    outcomes = results.outcomes(["learned", "ridge"])
    assert outcomes["learned"].recorded == {"tvm": [2.0, 3.0]} and math.isnan(outcomes["learned"].predicted["tvm"][1])
    assert outcomes["learned"].regrets == {"a": math.inf} and outcomes["learned"].low == {}
    assert (outcomes["learned"].pairs.count, outcomes["learned"].pairs.right) == (4, 3)
    assert outcomes["ridge"].recorded == {}


def test_an_evaluation_goes_on_and_drops_what_was_half_done(tmp_path: Path) -> None:
    written(tmp_path / "out.jsonl")
    with (tmp_path / "out.jsonl").open("a") as file:
        file.write('{"network": "b", "mo')
    again = Results(tmp_path / "out.jsonl", SETTINGS)
    assert again.done == {"a"} and {row["network"] for row in again.rows} == {"a"}
    again.write(network="b", done=True)
    assert Results(tmp_path / "out.jsonl", SETTINGS).done == {"a", "b"}


def test_other_records_are_not_mixed_in(tmp_path: Path) -> None:
    written(tmp_path / "out.jsonl")
    with pytest.raises(CollageError, match="other settings or records"):
        Results(tmp_path / "out.jsonl", {**SETTINGS, "digest": "1"})


def test_the_file_is_json(tmp_path: Path) -> None:
    written(tmp_path / "out.jsonl")
    for line in (tmp_path / "out.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
