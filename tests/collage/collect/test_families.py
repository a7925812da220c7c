"""Designed blocks: every family gives networks that load and that every backend's rules find candidates in."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collage.collect.collection
from collage.backends.onnx.onnxruntime import ONNXRuntimeBackend
from collage.backends.tvm.backend import TVMBackend
from collage.collect.blocks.families import TURNS, draw_network, families_named
from collage.collect.blocks.sketch import Sketch, shape_of
from collage.collect.collection import collect
from collage.collect.sampling import draw_candidates
from collage.cost.cost import Cost
from collage.errors import CollageError
from collage.frontend import load
from collage.graph.description import describe_module, structure_hash
from collage.graph.from_relax import read_graph
from collage.measure.reference import ReferenceRun
from collage.records import RecordDatabase
from collage.rules.base import PartitionSpec
from collage.rules.gather import gather_candidates
from tests.collage.collect.test_collection import Scripted, replace_estimators

SEEDS = (0, 1)


def each_family() -> list[int]:
    """The first turn of each."""
    return sorted({family: turn for turn, family in reversed(list(enumerate(TURNS)))}.values())


@pytest.mark.parametrize("turn", each_family(), ids=lambda turn: TURNS[turn].__name__)
def test_a_family_gives_networks_that_can_be_covered(turn: int) -> None:
    for round_ in range(2):
        name, module = draw_network(5, turn + round_ * len(TURNS))
        assert name == TURNS[turn].__name__
        graph = read_graph(load(module))
        specs = [PartitionSpec(backend.rule(), backend.name) for backend in (TVMBackend(), ONNXRuntimeBackend())]
        assert {c.backend for c in gather_candidates(graph, specs)} >= {"tvm", "onnxruntime"}


def test_the_same_numbers_draw_the_same_block_and_others_another() -> None:
    def drawn(seed: int, index: int) -> str:
        return structure_hash(describe_module(draw_network(seed, index)[1]))

    assert drawn(0, 3) == drawn(0, 3)
    assert len({drawn(seed, index) for seed in SEEDS for index in (3, 3 + len(TURNS))}) == 4


def test_activations_keep_their_magnitude_through_a_deep_block() -> None:
    depths = {turn: len(read_graph(load(draw_network(5, turn)[1])).nodes) for turn in each_family()}
    deepest = max(depths, key=depths.__getitem__)
    module = load(draw_network(5, deepest)[1])
    graph = read_graph(module)
    (result,) = ReferenceRun(module, graph, threads=1).outputs
    assert depths[deepest] > 40
    assert np.isfinite(result).all() and 1e-3 < np.abs(result).max() < 1e4


def test_a_layer_that_is_too_large_is_made_narrower() -> None:
    sketch = Sketch(random.Random(0), most_flops=1e7)
    x = sketch.input((1, 64, 32, 32))
    narrow = shape_of(sketch.convolution(x, 512, (3, 3)))[1]
    assert narrow == 8
    assert shape_of(Sketch(random.Random(0)).convolution(x, 512, (3, 3)))[1] == 512


def test_of_a_block_the_whole_comes_first_and_then_all_lengths_in_turns() -> None:
    class OfLength:
        def __init__(self, count: int, name: str = "relax.matmul") -> None:
            self.operators = (name,) * count

    groups: list[Any] = [[OfLength(n)] for n in (1, 1, 1, 2, 2, 4, 9, 20, 30)]
    lengths = [len(alternatives[0].operators) for alternatives in draw_candidates(groups, 6, random.Random(0))]
    assert lengths[0] == 30 and lengths[1:4] == [1, 2, 4] and lengths[4] in (9, 20)
    assert draw_candidates([], 6, random.Random(0)) == []
    assert len(draw_candidates(groups, 100, random.Random(0))) == len(groups)


def test_designed_blocks_are_measured_once_without_any_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_estimators(monkeypatch, itertools.repeat(1e-6))
    options: dict[str, Any] = {"records": tmp_path / "r.db", "samples": 0, "designed": 3, "threads": 1}
    first = collect([], ["onnxruntime"], **options)
    assert first.complete and first.known == 0 and first.measured == first.designed > 3
    again = collect([], ["onnxruntime"], **options)
    assert (again.known, again.measured) == (first.measured, 0)


class Failing(Scripted):
    """Fails at everything."""

    def estimate(self, workloads: Any) -> list[Cost]:
        return [Cost.invalid("out of order") for _ in workloads]


def test_families_that_are_named_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = families_named(["grouped", "pools"])
    assert [draw_network(0, index, turns)[0] for index in range(3)] == ["grouped", "pools", "grouped"]
    replace_estimators(monkeypatch, itertools.repeat(1e-6))
    options: dict[str, Any] = {"records": tmp_path / "r.db", "samples": 0, "designed": 2, "threads": 1}
    assert collect([], ["onnxruntime"], **options, families=["grouped"]).measured > 2
    with RecordDatabase(tmp_path / "r.db") as records:
        grouped = {node["attrs"].get("groups", 1) > 1 for r in records for node in (r.description or {})["nodes"]}
    assert True in grouped


@pytest.mark.parametrize("names", [["groupd"], []])
def test_a_family_that_there_is_not(names: list[str]) -> None:
    with pytest.raises(CollageError, match=r"there is no family .*grouped"):
        families_named(names)


def test_what_fails_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_estimators(monkeypatch, itertools.repeat(1e-6), Failing)
    found = collect([], ["onnxruntime"], records=tmp_path / "r.db", samples=0, designed=1, threads=1)
    assert found.invalid == found.measured > 0


def test_the_clock_is_looked_at_between_batches_of_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_estimators(monkeypatch, itertools.repeat(1e-6))
    now = itertools.count(0.0, 10.0)
    monkeypatch.setattr(collage.collect.collection.time, "monotonic", lambda: next(now))
    found = collect([], ["onnxruntime"], records=tmp_path / "r.db", samples=0, designed=1000, threads=1, budget_s=25.0)
    assert not found.complete and 0 < found.designed < 200
