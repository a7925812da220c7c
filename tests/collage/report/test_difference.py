"""What differs between two plans: what moved, what it costs, which measurement changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from collage.api.plan import Plan
from collage.cost.cost import Cost
from collage.errors import PlanError
from collage.planned.data import PlannedPartition
from collage.planned.file import write
from collage.report.difference import difference
from collage.report.difference_tables import difference_text
from collage.report.html import write_difference
from tests.collage.cli.conftest import Command, collage_command  # noqa: F401
from tests.collage.report.networks import with_network
from tests.collage.report.test_html import EVIL, Page


def moved_to(plan: Plan, number: int, backend: str) -> Plan:
    parts = list(plan.partitions)
    parts[number] = replace(parts[number], backend=backend, cost=Cost(8e-4, 1e-5, 9))
    return replace(plan, partitions=tuple(parts))


def test_equal_plans_do_not_differ() -> None:
    found = difference(with_network(3), with_network(3))
    assert (found.facts, found.moved, found.same) == ((), (), 6)
    assert difference_text(found) == "Nothing moved: 6 partitions stay as they are"


def test_a_partition_on_another_backend_has_moved_and_says_what_it_costs() -> None:
    ours = with_network(3)
    (moved,) = difference(ours, moved_to(moved_to(ours, 0, "tvm"), 2, "tvm")).moved
    assert (moved.before, moved.after, moved.times) == (("openvino",), ("tvm",), 2)
    assert (moved.before_s, moved.after_s) == (pytest.approx(2e-3), pytest.approx(1.6e-3))
    assert moved.operators == ("relax.nn.conv2d", "relax.add", "relax.nn.relu") and moved.measurement == ""


def test_the_measurement_that_changed_most_is_named() -> None:
    ours = with_network(3)
    assert ours.candidates is not None
    first, second, *rest = ours.candidates.listed
    slower = (first, replace(second, seconds=7e-4), *rest)
    theirs = replace(moved_to(ours, 2, "onnxruntime"), candidates=replace(ours.candidates, listed=slower))
    (moved,) = difference(ours, theirs).moved
    assert moved.measurement == "onnxruntime on conv2d+add+relu: 1.1 -> 0.7 ms"


def test_other_borders_are_compared_as_a_whole() -> None:
    ours = with_network(1)
    joined = PlannedPartition("tvm", (0, 1, 2, 3), tuple(op for p in ours.partitions[:2] for op in p.operators))
    found = difference(ours, replace(ours, partitions=(joined, ours.partitions[2])))
    assert [(m.before, m.after, len(m.operators)) for m in found.moved] == [(("openvino", "tvm"), ("tvm",), 4)]
    assert ("partitions", "2", "1") in found.facts


def test_plans_of_two_networks_are_refused() -> None:
    with pytest.raises(PlanError, match="two networks"):
        difference(with_network(1), replace(with_network(1), network="other"))


def test_the_command_prints_a_table_and_writes_a_page(tmp_path: Path, collage_command: Command) -> None:  # noqa: F811
    ours = with_network(3)
    write(ours.data(), tmp_path / "a.json")
    write(moved_to(ours, 0, EVIL).data(), tmp_path / "b.json")
    printed = collage_command("diff", tmp_path / "a.json", tmp_path / "b.json")
    assert printed.status == 0 and "1 place differs" in printed.out and max(map(len, printed.out.splitlines())) <= 100
    assert collage_command("diff", tmp_path / "a.json", tmp_path / "b.json", "--html", tmp_path / "d.html").status == 0
    page = Page((tmp_path / "d.html").read_text())
    assert page.data["sections"][0]["tables"][0]["rows"][0][3] == EVIL and page.tags.count("script") == 2


def test_a_page_of_a_difference_is_whole(tmp_path: Path) -> None:
    ours = with_network(2)
    write_difference(difference(ours, moved_to(ours, 0, "tvm")), tmp_path / "d.html", "a and b")
    assert "1 place differs" in Page((tmp_path / "d.html").read_text()).words
