"""A contest from the first trial to what is recorded, with made-up latencies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from collage.annotations.precision import INT8
from collage.confirm.confirmation import SEARCHED, UNTOUCHED
from collage.confirm.contest import Contest, cover_of
from collage.cost.cost import Cost
from collage.deployed.rivals import Rival
from collage.errors import CollageError
from collage.graph.candidates import CandidatePartition
from collage.graph.index_set import IndexSet
from collage.graph.sub_graph import SubGraph
from collage.records import RecordDatabase
from collage.records.key import digest_of
from tests.collage.confirm.races import GRAPH, MadeUpRunner, placement

SECONDS = {"x": 1.0, "y": 1.1, "z": 0.9, "untouched": 9.0, "openvino": 0.95}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RecordDatabase]:
    with RecordDatabase(tmp_path / "records.db") as opened:
        yield opened


@pytest.fixture
def rival(tmp_path: Path) -> Rival:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"the user's file")
    return Rival("openvino", path, "2026.4")


def contest(
    database: RecordDatabase,
    seconds: Mapping[str, float] = SECONDS,
    rivals: tuple[Rival, ...] = (),
    slower: float = 1.0,
) -> tuple[Contest, MadeUpRunner]:
    runner = MadeUpRunner(seconds, slower)
    return Contest("network", {}, database, runner, rivals), runner  # type: ignore[arg-type]


ALL = {SEARCHED: placement("x"), "y alone": placement("y"), UNTOUCHED: None}


def test_what_ships_is_run_again_against_the_best_other_plan_and_the_best_rival(
    database: RecordDatabase, rival: Rival
) -> None:
    found, runner = contest(database, rivals=(rival,))
    confirmation = found.decide(ALL, found.trial(ALL))
    assert confirmation.shipped == SEARCHED
    assert runner.races == [["untouched", "x", "y"], ["x", "y"], ["openvino", "x", "y"]], (
        "a rival cannot ship: the final is enough"
    )
    fresh = {c.name for c in confirmation.contestants if c.fresh}
    assert fresh == {SEARCHED, "y alone", "openvino by itself"}
    assert confirmation.of("openvino by itself").rival
    assert confirmation.faster_rival is not None and confirmation.faster_rival.name == "openvino by itself"
    assert confirmation.of(UNTOUCHED).ratio is None, "it lost in the trial"
    assert len(confirmation.of(SEARCHED).partition_seconds) == 3
    assert [call.partition for call in confirmation.of(SEARCHED).timeline] == [0, 1, 2]
    assert confirmation.of("y alone").timeline == (), "of what ships only"


def test_a_plan_that_lost_in_a_bad_moment_ships_where_its_rival_shows_it(
    database: RecordDatabase, rival: Rival
) -> None:
    plans = {SEARCHED: placement("x"), "openvino alone": placement("openvino")}
    found, runner = contest(database, {"x": 1.0, "openvino": 1.3}, rivals=(rival,))
    runner.later = {2: {"x": 1.0, "openvino": 0.93}}
    confirmation = found.decide(plans, found.trial(plans))
    assert runner.races[:3] == [["openvino", "x"], ["x"], ["openvino", "x"]], "it did not race"
    assert confirmation.shipped == "openvino alone" and confirmation.of("openvino alone").fresh
    second, runner = contest(database, rivals=(rival,))
    assert second.decide(plans, second.trial(plans)) == confirmation and runner.races == []


def test_a_plan_that_lost_and_did_not_run_again_keeps_the_numbers_of_its_trial(
    database: RecordDatabase, rival: Rival
) -> None:
    plans = {SEARCHED: placement("x"), "openvino alone": placement("openvino")}
    found, runner = contest(database, {"x": 1.0, "openvino": 1.3}, rivals=(rival,))
    confirmation = found.decide(plans, found.trial(plans))
    assert confirmation.shipped == SEARCHED and len(runner.races) == 3
    assert confirmation.of("openvino alone").latency.seconds == pytest.approx(1.3, rel=0.02)
    second, runner = contest(database, rivals=(rival,))
    assert second.decide(plans, second.trial(plans)) == confirmation and runner.races == []


def test_a_rival_that_is_far_behind_leaves_the_final(database: RecordDatabase, rival: Rival) -> None:
    found, runner = contest(database, {**SECONDS, "openvino": 5.0}, rivals=(rival,))
    confirmation = found.decide(ALL, found.trial(ALL))
    samples = {c.name: c.latency.samples for c in confirmation.contestants if c.fresh}
    rounds = runner.protocol.final_rounds
    assert samples == {SEARCHED: 3 * rounds, "y alone": 3 * rounds, "openvino by itself": 3 * 2}


def test_a_machine_that_became_slower_does_not_count_against_what_is_tried_later(database: RecordDatabase) -> None:
    found, runner = contest(database, slower=1.5)
    first = found.trial(ALL)
    (later,) = found.trial({SEARCHED: placement("z")}).values()
    assert runner.races[1] == ["x", "z"], "the fastest of the first trial runs along"
    assert first[SEARCHED].latency.seconds == pytest.approx(1.0, rel=0.02)
    assert later.latency.seconds == pytest.approx(0.9, rel=0.03)
    assert sum(later.partition_seconds) == pytest.approx(0.9, rel=0.03)
    assert later.timeline[-1].end == pytest.approx(0.9 * 2.9 / 3, rel=0.03)


def test_placements_that_are_equal_are_run_once_and_share_their_numbers(database: RecordDatabase) -> None:
    found, runner = contest(database)
    twins = {SEARCHED: placement("x"), "x alone": placement("x"), "y alone": placement("y")}
    confirmation = found.decide(twins, found.trial(twins))
    assert all(names == ["x", "y"] for names in runner.races)
    assert confirmation.shipped == SEARCHED
    assert confirmation.of("x alone").latency == confirmation.of(SEARCHED).latency
    found.trial({"again": placement("y")})
    assert len(runner.races) == 3, "what was tried is known"


def test_a_second_run_measures_nothing_and_gives_the_same(database: RecordDatabase, rival: Rival) -> None:
    first, _ = contest(database, rivals=(rival,))
    one = first.decide(ALL, first.trial(ALL))
    second, runner = contest(database, rivals=(rival,))
    assert second.decide(ALL, second.trial(ALL)) == one and runner.races == []
    rival.path.write_bytes(b"another file")
    third, runner = contest(database, rivals=(rival,))
    third.decide(ALL, third.trial(ALL))
    assert len(runner.races) == 2, "the trials are known, the contest had another rival"


def test_where_not_all_fit_into_memory_they_run_in_heats_beside_an_anchor(database: RecordDatabase) -> None:
    found, runner = contest(database)
    runner.capacity = 2
    trials = found.trial(ALL | {"z alone": placement("z")})
    assert runner.races == [["x", "y"], ["untouched", "x"], ["x", "z"]]
    assert trials["z alone"].latency.seconds == pytest.approx(0.9, rel=0.03)


def test_what_fails_is_out_with_its_reason_and_nobody_left_is_an_error(database: RecordDatabase) -> None:
    found, _ = contest(database, {**SECONDS, "x": float("inf")})
    confirmation = found.decide(ALL, found.trial(ALL))
    assert confirmation.shipped == "y alone" and confirmation.of(SEARCHED).latency.reason == "crashes"
    broken, _ = contest(database, {"x": float("inf"), "y": float("inf"), "untouched": float("inf")})
    broken.network = "another"
    with pytest.raises(CollageError, match="crashes"):
        broken.decide(ALL, broken.trial(ALL))


def test_the_machines_faults_are_not_recorded(database: RecordDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    found, runner = contest(database)
    entries = MadeUpRunner.enter

    def enter(self: MadeUpRunner, entrants: Mapping[str, Any]) -> dict[str, Any]:
        made = entries(self, entrants)
        if "y alone" in made:
            made["y alone"].problem = Cost.unknown("killed by SIGKILL")
        return made

    monkeypatch.setattr(MadeUpRunner, "enter", enter)
    found.trial(ALL)
    monkeypatch.undo()
    again, runner = contest(database)
    again.trial(ALL)
    assert runner.races, "it is tried again"


def test_who_wins_the_final_beyond_doubt_ships_with_numbers_of_another_final(database: RecordDatabase) -> None:
    """The race was won by luck: in the finals the other one is faster."""
    found, runner = contest(database, {"x": 1.0, "y": 1.05, "untouched": 9.0})
    runner.later = {2: {"x": 1.0, "y": 0.8, "untouched": 9.0}}
    confirmation = found.decide(ALL, found.trial(ALL))
    assert confirmation.shipped == "y alone" and len(runner.races) == 4
    assert confirmation.of(SEARCHED).ratio is not None
    assert confirmation.of(SEARCHED).ratio[0] == pytest.approx(1.25, rel=0.02)  # type: ignore[index]


def test_where_a_rival_wins_its_engine_alone_has_another_final(database: RecordDatabase, rival: Rival) -> None:
    """The race was disturbed: it put the engine's own plan last, though the rival, the same engine, is the fastest."""
    seconds = {"x": 1.0, "y": 1.05, "openvino": 1.1}
    found, runner = contest(database, seconds, rivals=(rival,))
    plans = {SEARCHED: placement("x"), "y alone": placement("y"), "openvino alone": placement("openvino", 1)}
    runner.later = {2: {**seconds, "openvino": 0.9}}
    confirmation = found.decide(plans, found.trial(plans))
    assert confirmation.shipped == "openvino alone" and confirmation.faster_rival is None
    assert runner.races[2:] == [["openvino", "x", "y"], ["openvino", "openvino", "x"], ["openvino", "openvino", "x"]]
    assert confirmation.of("openvino alone").fresh, "what is told is of after the choice"


def test_a_lead_that_the_final_does_not_confirm_gives_way_to_the_simpler_plan(database: RecordDatabase) -> None:
    found, runner = contest(database, {"x": 0.9, "y": 1.0})
    plans = {SEARCHED: placement("x"), "y alone": placement("y", 1)}
    runner.later = {2: {"x": 0.99, "y": 1.0}}
    confirmation = found.decide(plans, found.trial(plans))
    assert confirmation.shipped == "y alone" and confirmation.of("y alone").fresh
    assert runner.races[2:] == [["x", "y"]] * 2, "another final follows a choice"


def test_a_lead_in_doubt_is_raced_for_longer_by_those_alone_whom_it_concerns(
    database: RecordDatabase, rival: Rival
) -> None:
    """So much noise hides a lead of 8% for the usual number of rounds."""
    found, runner = contest(database, {"x": 0.92, "y": 1.0, "openvino": 1.0}, rivals=(rival,))
    runner.noise = 0.25
    plans = {SEARCHED: placement("x"), "y alone": placement("y", 1)}
    confirmation = found.decide(plans, found.trial(plans))
    assert confirmation.shipped == SEARCHED
    fresh = {c.name: c.latency.samples // 3 for c in confirmation.contestants if c.fresh}
    usual = runner.protocol.final_rounds
    assert fresh["openvino by itself"] == usual and usual < fresh[SEARCHED] <= 3 * usual
    assert fresh["y alone"] == fresh[SEARCHED]


def test_a_rival_that_is_not_beaten_gives_its_engine_alone_another_final(
    database: RecordDatabase, rival: Rival
) -> None:
    seconds = {"x": 1.0, "openvino": 1.1}
    found, runner = contest(database, seconds, rivals=(rival,))
    plans = {SEARCHED: placement("x"), "openvino alone": placement("openvino", 1)}
    runner.later = {2: {"x": 1.0, "openvino": 1.01}}
    assert found.decide(plans, found.trial(plans)).shipped == "openvino alone"


def test_what_fails_in_the_final_does_not_ship(database: RecordDatabase) -> None:
    found, runner = contest(database)
    runner.later = {2: {**SECONDS, "x": float("inf")}}
    confirmation = found.decide(ALL, found.trial(ALL))
    assert confirmation.shipped == "y alone" and confirmation.of("y alone").fresh


def test_placements_in_eight_bits_differ_by_their_nodes() -> None:
    """Labels of libraries stand for themselves, as in the records that there are."""
    plain, first, last, library = (
        [CandidatePartition(SubGraph(GRAPH, GRAPH.coverable), "x", labels)]
        for labels in (
            (),
            ((INT8, IndexSet([1])),),
            ((INT8, IndexSet([2])),),
            (("pattern", IndexSet([1])),),
        )
    )
    covers = [cover_of(each) for each in (plain, first, last, library)]
    assert covers[1:3] == [[["x", [0, 1, 2], [["int8", 1]]]], [["x", [0, 1, 2], [["int8", 2]]]]]
    assert covers[3] == [["x", [0, 1, 2], ["pattern"]]] and len({digest_of(each) for each in covers}) == 4
