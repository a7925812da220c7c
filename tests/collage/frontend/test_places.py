"""Devices that a Relax module asks for: read, spread, and kept apart."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from tvm.script import ir as I
from tvm.script import relax as R

import collage
from collage.annotations.places import places_of
from collage.backends.tvm.backend import TVMBackend
from collage.errors import FrontendError, NoCoverError
from collage.graph.candidates import HOST
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.description import describe_module, structure_hash
from collage.graph.from_relax import read_graph
from collage.rules.base import PartitionSpec
from collage.rules.gather import gather_candidates
from tests.collage.frontend.two_devices import hinted, plain, two_devices


def places(graph: DataflowGraph) -> list[tuple[str, str]]:
    return [(node.op.removeprefix("relax."), node.place) for node in graph.nodes if node.is_coverable]


def test_annotations_become_places_of_nodes_and_copies_disappear() -> None:
    module = collage.load(two_devices())
    graph = read_graph(module)
    assert places(graph) == [("nn.relu", "cpu"), ("add", "cpu:1"), ("nn.relu", "cpu:1"), ("exp", "cpu")]
    assert "vdevice" not in module.script()


def test_hints_spread_to_what_reads_and_what_is_read() -> None:
    assert places(read_graph(collage.load(hinted()))) == [("nn.relu", "cpu:1"), ("exp", "cpu:1"), ("add", "cpu:1")]


def test_a_loaded_module_keeps_its_places_when_it_is_loaded_again() -> None:
    module = collage.load(two_devices())
    assert places_of(collage.load(module)) == places_of(module) != ()


def test_structure_is_that_of_the_module_without_annotations() -> None:
    annotated, free = collage.load(two_devices()), collage.load(plain())
    assert places_of(free) == ()
    assert structure_hash(describe_module(annotated)) == structure_hash(describe_module(free))


def test_a_contradiction_is_told() -> None:
    @I.ir_module
    class Contradicting:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):  # type: ignore[no-untyped-def]
            with R.dataflow():
                a = R.hint_on_device(x, tvm.cpu(0))
                b = R.hint_on_device(y, tvm.cpu(1))
                c = R.add(a, b)
                R.output(c)
            return c

    with pytest.raises(FrontendError, match="contradict each other"):
        collage.load(Contradicting)


def specs(**devices: str) -> tuple[list[PartitionSpec], dict[str, str]]:
    rule = TVMBackend().rule()
    return [PartitionSpec(rule, name) for name in devices], devices


def test_candidates_run_on_the_device_of_every_node_and_never_span_two() -> None:
    graph = read_graph(collage.load(two_devices()))
    listed, devices = specs(first="cpu", second="cpu:1")
    found = gather_candidates(graph, listed, devices)
    assert {c.backend for c in found} >= {"first", "second"}
    for candidate in found:
        wanted = {graph.nodes[i].place for i in candidate.sub_graph.inside}
        assert candidate.backend == HOST or wanted == {devices[candidate.backend]}
    assert any(len(c.sub_graph.inside) == 2 for c in found)  # add and relu, both on the second device


def test_a_device_without_a_backend_is_named() -> None:
    graph = read_graph(collage.load(two_devices()))
    with pytest.raises(NoCoverError, match="on cpu:1, where the module wants it"):
        gather_candidates(graph, *specs(first="cpu"))


def test_a_module_that_was_changed_behind_its_places_is_refused() -> None:
    module: Any = collage.load(two_devices())
    shorter = module.with_attr("collage_places", ["cpu"])
    with pytest.raises(FrontendError, match="changed after its devices were read"):
        read_graph(shorter)
