"""What the summary of a plan says."""

from __future__ import annotations

import math
import re

import pytest
from msgspec.structs import replace

from collage.confirm.confirmation import SEARCHED, UNTOUCHED, Contestant
from collage.cost.cost import Cost
from collage.report import facts
from collage.report.summary import summarise
from tests.collage.report.plans import contestant, plan

CONTESTANTS = (
    contestant(SEARCHED, 5.0, 1.0),
    contestant("openvino alone", 5.6, 1.12),
    Contestant("onnxruntime alone", Cost.invalid("gives wrong numbers")),
    contestant(UNTOUCHED, 900.0, None, "stopped early: far slower than its rivals"),
)


def lines_with(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(start)]


def test_equal_partitions_are_one_row_that_says_where_they_are() -> None:
    rows = facts.partition_rows(plan(blocks=3))
    assert [(r.backend, r.positions) for r in rows] == [("openvino", (1, 3, 5)), ("tvm", (2, 4, 6))]
    assert [r.share for r in rows] == pytest.approx([2 / 3, 1 / 3])


def test_partitions_whose_costs_differ_are_rows_of_their_own() -> None:
    ours = plan(blocks=2)
    slower = tuple(replace(p, cost=Cost(2.0e-3, 1.0e-5, 9)) if i == 2 else p for i, p in enumerate(ours.partitions))
    rows = facts.partition_rows(replace(ours, partitions=slower))
    assert [r.positions for r in rows] == [(1,), (2, 4), (3,)]


def test_the_table_has_cost_spread_count_runner_up_and_margin() -> None:
    (row,) = lines_with(summarise(plan(CONTESTANTS)), "1,3,5")
    assert row.split() == [
        "1,3,5",
        "openvino",
        "conv2d+add+relu",
        "1",
        "±",
        "0.02",
        "×3",
        "66.7%",
        "onnxruntime",
        "+10.0%",
    ]


def test_the_whole_has_sum_end_to_end_additive_error_and_apparent_loss() -> None:
    text = summarise(plan(CONTESTANTS))
    assert "4.5 (no cover has a smaller sum)" in text
    assert re.search(r"end to end, as searched +5 ± 0\.01", text)
    assert re.search(r"additive error, predicted before its run +\+11\.1%; \+25\.0% of the parts alone", text)
    assert re.search(r"end to end over corrected sums +\+25\.0%", text)
    assert re.search(r"apparent loss +\+0\.0%", text)


def test_every_contestant_is_listed_fastest_first_with_ratio_interval_and_fate() -> None:
    text = summarise(plan(CONTESTANTS))
    order = [text.index(f"\n{name} ") for name in (SEARCHED, "openvino alone", UNTOUCHED, "onnxruntime alone")]
    assert order == sorted(order)
    assert re.sub(" +", " ", lines_with(text, "openvino alone")[0]) == "openvino alone 5.6 ± 0.01 1.120 1.110 to 1.130"
    assert lines_with(text, "onnxruntime alone")[0].endswith("gives wrong numbers")
    assert "stopped early" in lines_with(text, UNTOUCHED)[0]


TIE = (contestant(SEARCHED, 5.05, 1.0), contestant("tvm alone", 5.0, 0.99))
LOSS = (contestant(SEARCHED, 5.5, 1.1), contestant("tvm alone", 5.0, 1.0))
CRASH = (Contestant(SEARCHED, Cost.invalid("crashes")), contestant("tvm alone", 5.0, 1.0))


@pytest.mark.parametrize(
    ("contestants", "shipped", "words"),
    [
        (CONTESTANTS, SEARCHED, "collage ships: the fastest of 3 plans"),
        (TIE, SEARCHED, "tvm alone is faster by 1.0%, which counts as a tie"),
        (LOSS, "tvm alone", "the searched plan takes 10.0% more"),
        (CRASH, "tvm alone", "the only plan that runs and gives the right numbers"),
        ((), SEARCHED, "collage ships, unconfirmed"),
    ],
)
def test_the_verdict_says_what_ships_and_why(contestants: tuple[Contestant, ...], shipped: str, words: str) -> None:
    assert words in summarise(plan(contestants, shipped))


def test_host_nodes_are_one_line_and_notes_are_shown() -> None:
    text = summarise(plan(CONTESTANTS, notes=("2 ties were broken by priority",)))
    assert "On the virtual machine, without a kernel: reshape\n" in text
    assert "Note: 2 ties were broken by priority" in text


def test_the_text_is_plain_and_narrow() -> None:
    text = summarise(plan(CONTESTANTS, notes=("a [bold]note[/bold] is text",)))
    assert "\x1b" not in text and "[bold]note[/bold]" in text
    assert max(map(len, text.splitlines())) <= 100


def test_unknown_and_invalid_costs_do_not_break_the_summary() -> None:
    ours = plan((Contestant(SEARCHED, Cost.invalid("crashes")), contestant("tvm alone", 5.0, 1.0)), "tvm alone")
    unknown = replace(ours, searched_cost=Cost.unknown())
    assert "unknown" in summarise(unknown)


def test_what_greed_would_lose_is_said_where_it_is_known() -> None:
    assert "greedy" not in summarise(plan(CONTESTANTS))
    assert "a greedy placement instead" in summarise(replace(plan(CONTESTANTS), greedy_loss=0.25))
    assert "+25.0% by the costs of the first search" in summarise(replace(plan(CONTESTANTS), greedy_loss=0.25))


def test_an_inexact_search_says_how_far_from_the_optimum_it_may_be() -> None:
    ours = plan(CONTESTANTS)
    assert "at most 10.0% below" in summarise(replace(ours, lower_bound=0.9 * 4.5e-3))


@pytest.mark.parametrize(
    ("operators", "text"),
    [
        (["relax.nn.conv2d", "relax.add"], "conv2d+add"),
        (["relax.add"] * 3 + ["relax.nn.relu"], "add×3+relu"),
        (["call_tir:pad"], "call_tir:pad"),
        (["relax.nn.conv2d", "relax.nn.relu"] * 20, "40 operators: conv2d×20, relu×20"),
    ],
)
def test_operators_are_shortened(operators: list[str], text: str) -> None:
    assert facts.shorten(operators) == text


def test_a_long_list_of_operators_stays_within_its_width() -> None:
    many = [f"relax.operator_number_{i}" for i in range(40)]
    assert len(facts.shorten(many, 48)) <= 48
    assert facts.shorten(many, 48).startswith("40 operators: operator_number_0")


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((1,), "1"), ((1, 2, 3), "1-3"), ((1, 3, 5), "1,3,5"), (tuple(range(1, 60, 2)), "1,3,5,7,9,11…")],
)
def test_positions_are_compact(numbers: tuple[int, ...], text: str) -> None:
    assert facts.positions(numbers).replace(",…", "…") == text


@pytest.mark.parametrize(
    ("ratio", "text"), [(0.024, "+2.4%"), (-0.6, "-60.0%"), (15.4, "×16.4"), (math.nan, ""), (math.inf, "")]
)
def test_percent(ratio: float, text: str) -> None:
    assert facts.percent(ratio) == text


def test_a_rival_that_is_faster_than_all_that_can_ship_is_the_first_line() -> None:
    faster = Contestant("openvino by itself", Cost(4.5e-3), (0.9, 0.88, 0.92), rival=True)
    text = summarise(plan((*CONTESTANTS, faster)))
    assert text.splitlines()[0].startswith(
        "openvino by itself is faster than all that Collage can ship here: 1.11 times"
    )
    assert lines_with(text, "openvino by itself")[1].endswith("its own API")
    assert "collage ships: the fastest of 3 plans" in text, "a rival is no plan"
    perhaps = Contestant("openvino by itself", Cost(4.9e-3), (0.98, 0.95, 1.01), rival=True)
    assert "faster than all" not in summarise(plan((*CONTESTANTS, perhaps)))


def test_only_numbers_of_the_final_are_shown_as_such() -> None:
    rows = (replace(contestant(SEARCHED, 5.0, 1.0), fresh=True, percentile=6e-3), contestant("tvm alone", 5.2, 1.04))
    text = summarise(plan(rows))
    assert re.search(r"collage +5 ± 0\.01 +6 ", text)
    assert lines_with(text, "tvm alone")[0].endswith("left before the final")


def test_plans_for_several_shapes_have_a_table_of_latency_and_throughput() -> None:
    small = replace(plan(CONTESTANTS), inputs={"x": (1, 3)})
    large = replace(plan(CONTESTANTS), inputs={"x": (8, 3), "scale": ()})
    unknown = replace(plan(), inputs={"x": (2, 3)})
    text = summarise(small, large, unknown)
    rows = [line.split() for line in text.splitlines()[2:5]]
    assert rows[0] == ["x=1,3", "collage", "openvino,", "tvm", "5", "±", "0.01", "1", "200"]
    assert rows[1][-2:] == ["8", "1,600"] and rows[2][-3:] == ["not", "run", "2"]
    assert "1,600 samples per second, in batches of 8" in text and "in batches of 1" not in text
    assert text.count("What runs where") == 3
