"""Who starts in a race."""

from __future__ import annotations

import pytest

from collage.confirm.starters import starters

ENGINES = {"collage": "x", "x on the file": "x", "y on the file": "y"}


def test_who_lost_in_the_trials_does_not_race() -> None:
    assert starters({"a": 1.0, "b": 1.16, "c": 0.9, "d": 1.0}, {}) == ["c", "a", "d"]


@pytest.mark.parametrize(
    ("file", "names"),
    [
        (0.98, ["x on the file", "y on the file", "mixture"]),
        (1.01, ["y on the file", "x on the file", "mixture"]),
        (1.04, ["collage", "y on the file", "x on the file", "mixture"]),
    ],
)
def test_an_engines_plan_races_beside_its_file_only_where_it_seems_to_be_faster(file: float, names: list[str]) -> None:
    seconds = {"collage": 1.0, "x on the file": file, "y on the file": 1.005, "mixture": 1.05}
    assert starters(seconds, ENGINES) == names


def test_where_the_file_lost_or_does_not_run_the_engines_plan_races() -> None:
    assert starters({"collage": 1.0, "x on the file": 1.2}, ENGINES) == ["collage"]
    assert starters({"collage": 1.0, "mixture": 1.1}, ENGINES) == ["collage", "mixture"]
