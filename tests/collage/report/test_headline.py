"""The first lines: what ships, how much faster than which rival, how sure."""

from __future__ import annotations

from msgspec.structs import replace

from collage.confirm.confirmation import SEARCHED, Contestant
from collage.cost.cost import Cost
from collage.report.headline import headline, strongest
from collage.report.summary import summarise
from tests.collage.report.plans import contestant, plan


def rival(ratio: tuple[float, float, float], name: str = "openvino by itself") -> Contestant:
    return Contestant(name, Cost(5e-3 * ratio[0]), ratio, rival=True, fresh=True)


def test_the_first_lines_say_what_ships_against_whom_and_how_sure() -> None:
    ours = plan((contestant(SEARCHED, 5.0, 1.0), contestant("tvm alone", 5.6, 1.12), rival((1.06, 1.04, 1.08))))
    ships, against, sure = headline(ours)
    assert ships == "Ships: collage: 6 partitions on openvino ×3, tvm ×3; 5 ± 0.01 ms a call, 2 threads"
    assert against == "1.06 times as fast as openvino by itself; 1.12 times as fast as tvm alone"
    assert sure.startswith("How sure: certain against openvino by itself (95% interval 1.040 to 1.080); certain")
    assert summarise(ours, details=False).startswith(ships)


def test_a_tie_and_a_faster_rival_are_called_so() -> None:
    tie = plan((contestant(SEARCHED, 5.0, 1.0), rival((1.01, 0.99, 1.03))))
    assert "a tie against openvino by itself" in headline(tie)[2]
    faster = plan((contestant(SEARCHED, 5.0, 1.0), rival((0.8, 0.78, 0.82))))
    assert headline(faster)[1] == "Takes 25.0% more than openvino by itself"
    assert "certainly slower against" not in headline(faster)[2] and "certainly slower than" in headline(faster)[2]


def test_placements_of_the_same_search_are_no_rivals() -> None:
    ours = plan((contestant(SEARCHED, 5.0, 1.0), contestant(f"{SEARCHED}, round 2", 5.1, 1.02)))
    assert strongest(ours) == [] and len(headline(ours)) == 2


def test_without_a_contest_it_says_so() -> None:
    assert headline(plan())[1].startswith("Not confirmed")
    assert headline(replace(plan(), partitions=()))[0] == "Ships: collage, built by TVM alone, 2 threads"


def test_the_short_summary_has_no_partitions_and_fits_its_columns() -> None:
    ours = plan(
        (contestant(SEARCHED, 5.0, 1.0), rival((1.06, 1.04, 1.08), "a rival of a name as long as it gets by itself"))
    )
    text = summarise(ours, details=False)
    assert "What runs where" not in text and "What runs where" in summarise(ours)
    assert max(map(len, [*text.splitlines(), *summarise(ours).splitlines()])) <= 100
