"""What partitions take inside the whole, and placements that are searched by running them, on real backends."""

from __future__ import annotations

from pathlib import Path

import pytest

import collage
from collage.deployed.plan_runner import PlanRunner, partition_seconds
from collage.deployed.protocol import EndToEnd
from collage.graph.candidates import HOST, CandidatePartition
from collage.graph.from_relax import read_graph
from collage.graph.index_set import IndexSet
from collage.graph.sub_graph import SubGraph
from collage.measure.reference import ReferenceRun
from collage.progress import Reporter
from collage.records import RecordDatabase
from searchers.evolutionary import EvolutionarySearcher
from tests.e2e.conftest import Tuned
from tests.e2e.efforts import EVERYTHING

pytestmark = pytest.mark.long


def _records(path: Path) -> int:
    with RecordDatabase(path) as database:
        return len(database)


def test_every_partition_of_a_placement_that_ran_has_its_seconds(tuned: Tuned) -> None:
    count = sum(p.backend != HOST for p in tuned.plan.partitions)
    shipped = tuned.plan.confirmation.of(tuned.plan.choice)
    assert len(shipped.partition_seconds) == count
    assert all(seconds > 0 for seconds in shipped.partition_seconds)
    # The whole is called from Python, which takes longer than this small network does: the parts have an upper bound.
    assert sum(shipped.partition_seconds) <= 3.0 * shipped.latency.seconds


def test_a_plan_says_what_was_searched_and_run_on_the_way(tuned: Tuned) -> None:
    assert tuned.plan.rounds
    assert tuned.plan.answer in tuned.plan.rounds
    assert tuned.plan.corrected_cost.is_finite
    assert "additive error" in tuned.plan.summary()


def test_contestants_whose_partitions_have_the_same_names_are_not_mixed_up(tuned: Tuned) -> None:
    """Engines are found by name: the first partition of the halves is called what the whole is called."""
    graph = read_graph(tuned.module)
    nodes = list(graph.coverable)
    middle = len(nodes) // 2

    def on_openvino(*parts: list[int]) -> list[CandidatePartition]:
        return [CandidatePartition(SubGraph(graph, IndexSet(part)), "openvino") for part in parts]

    placements = {"whole": on_openvino(nodes), "halves": on_openvino(nodes[:middle], nodes[middle:])}
    run = ReferenceRun(tuned.module, graph, 1)
    backends = {"openvino": tuned.plan.backends["openvino"]}
    with PlanRunner(
        tuned.module, graph, backends, 1, run.inputs, lambda: run.outputs, Reporter(), EndToEnd()
    ) as runner:
        race = runner.race(placements, 2)
        watched = {name: runner.watch(placement) for name, placement in placements.items()}
    for name, placement in placements.items():
        assert len(race.samples[name]) == 2
        assert len(partition_seconds(watched[name].parts, placement)) == len(placement)


@pytest.fixture(scope="module")
def uncorrected(tuned: Tuned) -> collage.Plan:
    """Of the model, whose costs are not corrected by runs."""
    return collage.partition(tuned.model, records=tuned.records, effort=EVERYTHING, correction_rounds=0)


def test_engines_by_themselves_take_part_where_the_network_is_an_onnx_file(
    tuned: Tuned, uncorrected: collage.Plan
) -> None:
    """The module of a model in memory has no file; the model has."""
    assert not any(c.rival for c in tuned.plan.confirmation.contestants)
    rivals = {c.name: c for c in uncorrected.confirmation.contestants if c.rival}
    assert set(rivals) == {"openvino by itself", "onnxruntime by itself"}
    assert all(c.latency.is_finite for c in rivals.values()), [c.latency.reason for c in rivals.values()]
    assert uncorrected.choice not in rivals


def test_rounds_are_a_parameter(uncorrected: collage.Plan) -> None:
    assert len(uncorrected.rounds) == 1


@pytest.mark.timeout(300)
def test_evolution_runs_whole_placements_and_a_second_run_measures_nothing(tuned: Tuned) -> None:
    searcher = EvolutionarySearcher(
        population=6, generations=2, distinct_covers=1, measured_per_generation=2, time_limit_s=None
    )
    before = _records(tuned.records)
    first = collage.partition(tuned.module, searcher=searcher, records=tuned.records, effort=EVERYTHING)
    between = _records(tuned.records)
    second = collage.partition(tuned.module, searcher=searcher, records=tuned.records, effort=EVERYTHING)
    assert between > before
    assert _records(tuned.records) == between
    assert [p.nodes for p in first.partitions] == [p.nodes for p in second.partitions]
    assert any("generation" in note for note in first.notes), first.notes
