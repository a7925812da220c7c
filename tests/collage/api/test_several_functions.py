"""A module of several functions, a user's rule, and rewrites that a backend asks for."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import tvm
from tvm import relax
from tvm.relax import op

import collage
from collage.api.partitioner import enumerate_candidates
from collage.backends.tvm.backend import TVMBackend
from collage.errors import FrontendError
from collage.frontend.functions import entry_module, entry_points, function_notes
from collage.frontend.source import notes_of
from collage.graph.from_relax import read_graph
from collage.rules import OpCallByKindPartitionRule


def module() -> Any:
    """Public `main` and `decode`, both of which call the private `half`."""
    builder = relax.BlockBuilder()
    h = relax.Var("h", relax.TensorType((4, 6), "float32"))
    with builder.function("half", [h], private=True):
        with builder.dataflow():
            result = builder.emit_output(op.multiply(h, relax.const(0.5)))
        half = builder.emit_func_output(result)
    for name, last in (("main", op.nn.relu), ("decode", op.abs)):
        x = relax.Var("x", relax.TensorType((4, 6), "float32"))
        with builder.function(name, [x]):
            with builder.dataflow():
                result = builder.emit_output(last(builder.emit(half(x))))
            builder.emit_func_output(result)
    return builder.get()


def operators(canonical: Any) -> list[str]:
    return [node.op.rpartition(".")[2] for node in read_graph(canonical).nodes if node.is_coverable]


def test_each_public_function_is_a_network_and_what_is_left_is_noted() -> None:
    assert entry_points(module()) == ("main", "decode")
    assert operators(collage.load(module())) == ["multiply", "relu"]
    assert operators(collage.load(entry_module(module(), "decode"))) == ["multiply", "abs"]
    assert "'decode'" in notes_of(collage.load(module()))[0]
    assert function_notes(entry_module(module(), "decode")) == ()
    with pytest.raises(FrontendError, match="it has: main, decode"):
        entry_module(module(), "half")


def test_every_function_has_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def plan(given: Any, **options: Any) -> str:
        asked[name := operators(collage.load(given))[-1]] = options
        return name

    monkeypatch.setattr("collage.api.several_functions.partition", plan)
    found = collage.partition_functions(module(), {"decode": {"x": (4, 6)}}, threads=1)
    assert found == {"main": "relu", "decode": "abs"}
    assert asked["abs"] == {"shapes": {"x": (4, 6)}, "threads": 1} and asked["relu"]["shapes"] is None


def test_a_users_rule_is_in_the_place_of_the_backends_own() -> None:
    graph = read_graph(collage.load(module()))

    def sizes(backend: TVMBackend) -> list[int]:
        return [len(c.sub_graph.inside) for c in enumerate_candidates(graph, {"tvm": backend})]

    own = TVMBackend()
    alone = own.with_rule(OpCallByKindPartitionRule())
    assert max(sizes(own)) == 2 and max(sizes(alone)) == 1
    assert sizes(pickle.loads(pickle.dumps(alone))) == sizes(own), "workers build candidates and find none"
    assert alone.configuration() == own.configuration()


def test_a_backend_rewrites_the_whole_network_when_it_is_asked_to() -> None:
    class Renaming(TVMBackend):
        def optimize(self, module: Any) -> Any:
            return module.with_attr("renamed", True)

    canonical = collage.load(module())
    tvm.ir.assert_structural_equal(collage.optimize_for("tvm", canonical), canonical)
    assert collage.optimize_for(Renaming(), canonical).attrs["renamed"]
