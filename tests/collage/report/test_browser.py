"""The page in a real browser: clicks, keys, search, widths, and names that would like to be scripts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from collage.planned.data import PlannedPartition
from collage.planned.graph import PlannedGraph, PlannedNode
from collage.report.difference import difference
from collage.report.html import write_difference
from tests.collage.report.conftest import EVIL, SIZES, Open
from tests.collage.report.networks import with_network
from tests.collage.report.plans import plan

pytestmark = pytest.mark.browser

#: Where a node is drawn, in pixels of the page; null where it is not.
_WHERE = """label => {
    const canvas = document.querySelector(".canvas"), cy = canvas._cyreg.cy;
    const node = cy.nodes().filter(n => n.data("label").includes(label))[0];
    if (!node) return null;
    const { left, top } = canvas.getBoundingClientRect(), { x, y } = node.renderedPosition();
    return { x: left + x, y: top + y };
}"""
_DRAWN = 'document.querySelector(".canvas")._cyreg.cy.nodes().length'


def click(page: Any, label: str, times: int = 1) -> None:
    page.locator("#contest .chart svg").wait_for()  # until then the canvas moves
    page.locator("#calls .chart svg").wait_for()
    page.locator(".canvas").scroll_into_view_if_needed()
    where = page.evaluate(_WHERE, label)
    page.mouse.click(where["x"], where["y"], click_count=times)


def until(page: Any, holds: Callable[[int], bool]) -> None:
    """Wait until the number of nodes that are drawn is as it should be; the page's policy forbids to wait inside."""
    for _ in range(200):
        if holds(page.evaluate(_DRAWN)):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"{page.evaluate(_DRAWN)} nodes are drawn")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_the_page_is_no_wider_than_the_window(show: Open, size: tuple[int, int], scheme: str) -> None:
    long = "a note with averyveryverylongname" + "_and_more" * 40
    page = show(with_network(12, notes=(long,)), "x" * 200, size, scheme)
    for fold in page.locator("details > summary").all():
        fold.click()
    page.locator("#partitions button").first.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert page.locator(".headline").inner_text().startswith("Ships: collage")


def test_a_click_shows_what_a_partition_is_and_why(show: Open) -> None:
    page = show(with_network(3))
    click(page, "openvino\nconv2d")
    panel = page.locator(".panel")
    assert panel.locator("h3").inner_text() == "Partition 1: openvino"
    text = panel.inner_text()
    for words in ("onnxruntime 1.1 ± 0.01 ms on the same operators", "expected 0.8 to 1.3 ms", "not asked", "7 more"):
        assert words in text, words
    panel.get_by_role("button", name="conv2d").first.click()
    assert "operator 0" in panel.locator("h3").inner_text()
    assert "strides" in panel.inner_text() and "[1,1,1,1]" in panel.inner_text()


def test_transitions_are_named_at_borders(show: Open) -> None:
    page = show(with_network(3))
    click(page, "tvm bf16\nsoftmax")
    assert "Transitions into it" in page.locator(".panel").inner_text()
    assert "0.01 ms" in page.locator(".panel").inner_text()


def test_a_double_click_opens_a_group_and_a_button_closes_it(show: Open) -> None:
    page = show(with_network(3))
    before = page.evaluate(_DRAWN)
    click(page, "openvino\nconv2d", times=2)
    until(page, lambda drawn: drawn == before + 3)
    page.get_by_role("button", name="Close").click()
    until(page, lambda drawn: drawn == before)


def test_repeated_blocks_are_folded_and_unfolded(show: Open) -> None:
    page = show(with_network(60))
    assert page.locator("#fold").is_checked()
    before = page.evaluate(_DRAWN)
    page.locator("#fold").uncheck()
    until(page, lambda drawn: drawn > before + 100)
    page.locator("#fold").check()
    until(page, lambda drawn: drawn <= before)


def test_search_finds_operators_inside_of_closed_groups(show: Open) -> None:
    page = show(with_network(60))
    box = page.get_by_role("searchbox")
    box.fill("layer41.conv")
    assert page.locator(".search [role=status]").inner_text() == "1 found"
    box.press("Enter")
    assert page.locator(".panel h3").inner_text() == "conv2d (operator 164)"
    assert "layer41.conv" in page.locator(".panel").inner_text()
    box.fill("no such thing")
    assert page.locator(".search [role=status]").inner_text() == "0 found"


def test_the_graph_is_used_with_keys_alone(show: Open) -> None:
    page = show(with_network(3))
    page.locator(".canvas").focus()
    heading = page.locator(".panel h3")
    page.keyboard.press("ArrowRight")
    assert "input" in heading.inner_text()
    page.keyboard.press("ArrowDown")
    assert heading.inner_text() == "Partition 1: openvino"
    before = page.evaluate(_DRAWN)
    page.keyboard.press("Enter")
    until(page, lambda drawn: drawn == before + 3)
    page.keyboard.press("Enter")
    until(page, lambda drawn: drawn == before)


def test_charts_are_drawn_and_what_is_far_off_is_a_note(show: Open) -> None:
    page = show(with_network(3))
    for section in ("contest", "rounds", "calls", "frontier"):
        assert page.locator(f"#{section} .chart svg").count() == 1, section
    drawn = page.locator("#contest .chart").inner_text()
    assert "openvino by itself" in drawn and "untouched TVM" not in drawn
    notes = page.locator("#contest > ul").inner_text()
    assert "untouched TVM: takes 180 times as long" in notes and "tvm alone: stopped early" in notes


def test_colours_and_theme_change(show: Open) -> None:
    page = show(with_network(3))
    page.get_by_label("Colour by").select_option("time")
    assert "much time" in page.locator(".legend").inner_text()
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 25, 29)"


def test_names_cannot_run_script(show: Open) -> None:
    evil = with_network(3, EVIL, notes=(EVIL,))
    assert evil.graph is not None
    nodes = tuple(replace(n, op=EVIL) if i == 3 else n for i, n in enumerate(evil.graph.nodes))
    attributes = ({EVIL: EVIL},)
    parts = tuple(replace(p, backend=EVIL) if p.backend == "tvm" else p for p in evil.partitions)
    page = show(replace(evil, graph=PlannedGraph(nodes, attributes), partitions=parts), EVIL)
    page.get_by_role("searchbox").fill("script conv")
    page.get_by_role("searchbox").press("Enter")
    assert page.locator("h1").inner_text() == EVIL and EVIL in page.locator(".panel").inner_text()
    assert page.evaluate("window.ran") is None and page.locator("img").count() == 0


def test_twenty_thousand_operators_can_be_opened_and_searched(show: Open) -> None:
    count = 20_000
    nodes = tuple(
        PlannedNode(f"relax.op{i * i % 97}", (i - 1,) if i else (), f"float32[{i % 7 + 1}]", f"n{i}")
        for i in range(count)
    )
    backends = ("tvm", "openvino", "onnxruntime")
    parts = tuple(
        PlannedPartition(
            backends[first % 3], tuple(range(first, first + 4)), tuple(n.op for n in nodes[first : first + 4])
        )
        for first in range(0, count, 4)
    )
    page = show(replace(plan(), partitions=parts, graph=PlannedGraph(nodes)))
    assert page.evaluate(_DRAWN) < 1500
    page.get_by_role("searchbox").fill("n12345")
    page.get_by_role("searchbox").press("Enter")
    assert "(operator 12345)" in page.locator(".panel h3").inner_text()
    assert page.evaluate(_DRAWN) < 1500


def test_plans_for_several_shapes_are_chosen(show: Open) -> None:
    small, large = (replace(with_network(2), inputs={"x": (n, 3)}) for n in (1, 8))
    page = show([small, large])
    page.get_by_label("Shapes of the inputs").select_option("x=8,3")
    assert "1,600 samples" in page.locator("#rounds").inner_text()
    assert page.locator(".canvas").count() == 1


def test_an_unconfirmed_plan_without_a_network_has_a_page(show: Open) -> None:
    page = show(plan())
    assert page.locator(".canvas").count() == 0 and "Not confirmed" in page.locator(".headline").inner_text()


@pytest.mark.parametrize("size", SIZES)
def test_the_difference_of_two_plans_is_a_page(open_file: Open, tmp_path: Path, size: tuple[int, int]) -> None:
    ours = with_network(3)
    parts = (replace(ours.partitions[0], backend="a backend with a very long name " * 4), *ours.partitions[1:])
    write_difference(difference(ours, replace(ours, partitions=parts)), tmp_path / "d.html", "a and b")
    page = open_file(tmp_path / "d.html", size)
    assert "1 place differs" in page.locator(".headline").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
