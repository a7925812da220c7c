"""Levels of detail: repeated blocks and long lists become groups; nothing is lost, and order is kept."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collage.report.levels import nested, tree
from tests.collage.report.networks import with_network


def leaves(members: list[Any]) -> list[int]:
    return [leaf for m in members for leaf in ([m] if isinstance(m, int) else leaves(m["members"]))]


def widest(members: list[Any]) -> int:
    return max([len(members), *(widest(m["members"]) for m in members if not isinstance(m, int))])


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.integers(0, 3), max_size=150))
def test_groups_are_intervals_of_the_order_and_never_long(kinds: list[int]) -> None:
    found = nested(list(range(len(kinds))), kinds)
    assert leaves(found) == list(range(len(kinds)))
    assert widest(found) <= 60


def test_blocks_that_repeat_are_one_group() -> None:
    kinds = ["stem", *("conv", "add", "relu") * 5, "pool"]
    stem, repeat, pool = nested(list(range(len(kinds))), kinds)
    assert (stem, pool) == (0, 16)
    assert (repeat["kind"], repeat["period"], repeat["times"]) == ("repeat", 3, 5)
    assert [block["members"] for block in repeat["members"]] == [[1 + 3 * k, 2 + 3 * k, 3 + 3 * k] for k in range(5)]


@pytest.mark.parametrize("kinds", [[], ["a"], ["a", "b", "a"], ["a", "a", "a"]])
def test_short_lists_stay_as_they_are(kinds: list[str]) -> None:
    assert nested(list(range(len(kinds))), kinds) == list(range(len(kinds)))


def test_a_network_is_its_partitions_and_these_their_operators() -> None:
    plan = with_network(3)
    assert plan.graph is not None
    repeat, host = tree(plan, plan.graph)
    assert isinstance(repeat, dict) and isinstance(host, dict)
    assert (repeat["kind"], repeat["period"], repeat["times"]) == ("repeat", 2, 3)
    assert [m["partition"] for m in repeat["members"][1]["members"]] == [2, 3]
    assert leaves(repeat["members"]) == list(range(12)) and host["members"] == [12]


def test_twenty_thousand_operators_are_a_tree_of_short_lists() -> None:
    irregular = [i * i % 7919 for i in range(20_000)]
    pairs = [i // 4 % 7919 if i % 5 else i for i in range(20_000)]  # thousands of short repetitions
    assert all(widest(nested(list(range(20_000)), kinds)) <= 60 for kinds in (irregular, pairs))
