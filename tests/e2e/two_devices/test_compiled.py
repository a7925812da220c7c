"""Plans over two devices, compiled: copies stand only where the device differs, each once, and numbers are right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax

import collage
from collage.backends.base import Backend
from collage.backends.tvm.backend import TVMBackend
from collage.compile.build import build
from collage.compile.copies import owners_of, with_copies
from collage.compile.rewrite import apply
from collage.errors import CodegenError
from collage.graph.candidates import HOST, CandidatePartition
from collage.graph.from_relax import read_graph
from collage.graph.index_set import IndexSet
from collage.graph.sub_graph import SubGraph
from collage.search import execution_order
from collage.testing.fresh import run
from tests.e2e.two_devices.backend import SecondDevice

SHAPE = (4, 16)
BACKENDS: dict[str, Backend] = {"tvm": TVMBackend(), "second": SecondDevice()}
DEVICES = {name: backend.device for name, backend in BACKENDS.items()}


def network() -> Any:
    """a = relu(x); b = exp(a); c = -a; d = b + c; e = d * x; results are d, e and a reshaped d."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(relax.op.nn.relu(x))
            b = builder.emit(relax.op.exp(a))
            c = builder.emit(relax.op.negative(a))
            d = builder.emit(relax.op.add(b, c))
            view = builder.emit(relax.op.reshape(d, (16, 4)))
            e = builder.emit(relax.op.multiply(d, x))
            out = builder.emit_output(relax.Tuple([d, e, view]))
        builder.emit_func_output(out)
    return builder.get()


def expected(x: np.ndarray) -> list[np.ndarray]:
    a = np.maximum(x, 0)
    d = np.exp(a) - a
    return [d, d * x, d.reshape(16, 4)]


def partitioned(places: Sequence[tuple[str, Sequence[int]]]) -> Any:
    module = collage.load(network())
    graph = read_graph(module)
    order = list(graph.coverable)
    cover = [CandidatePartition(SubGraph(graph, IndexSet(order[i] for i in nodes)), name) for name, nodes in places]
    return apply(module, graph, execution_order(graph, cover), BACKENDS)


def copies(module: Any) -> list[str]:
    """What is copied in `main`, and where to."""
    bindings = [b for block in module["main"].body.blocks for b in block.bindings]
    return [
        f"{b.value.args[0].name} -> {b.value.attrs.dst_vdevice.vdevice_id}"
        for b in bindings
        if isinstance(b.value, relax.Call) and getattr(b.value.op, "name", "") == "relax.to_vdevice"
    ]


def placed(places: Sequence[tuple[str, Sequence[int]]]) -> Any:
    module = partitioned(places)
    return with_copies(module, owners_of(module, DEVICES), "cpu")


def test_a_value_is_copied_once_however_many_partitions_read_it() -> None:
    places = [("tvm", [0]), ("second", [1]), ("second", [2]), ("tvm", [3]), (HOST, [4]), ("tvm", [5]), (HOST, [6])]
    assert copies(placed(places)) == ["lv -> 1", "lv1 -> 0", "lv2 -> 0"]


def test_inputs_and_results_are_on_the_first_device_and_views_lie_with_what_they_read() -> None:
    copied = copies(placed([("second", [0, 1, 2, 3]), (HOST, [4]), ("second", [5]), (HOST, [6])]))
    assert copied[0] == "x -> 1" and copied.count("x -> 1") == 1
    assert sorted(c.split(" -> ")[1] for c in copied[1:]) == ["0"] * 3  # the three results


@pytest.mark.parametrize(
    "places",
    [
        [("tvm", [0]), ("second", [1]), ("second", [2]), ("tvm", [3]), (HOST, [4]), ("tvm", [5]), (HOST, [6])],
        [("second", [0, 1, 2]), ("tvm", [3]), (HOST, [4]), ("second", [5]), (HOST, [6])],
        [("second", [0, 1, 2, 3]), (HOST, [4]), ("second", [5]), (HOST, [6])],
    ],
)
def test_compiled_exported_and_run_in_a_fresh_process(places: Any, tmp_path: Path) -> None:
    compiled = build(partitioned(places), BACKENDS.values(), threads=1, home="cpu")
    x = np.random.default_rng(0).standard_normal(SHAPE, dtype=np.float32)
    assert compiled.load().devices == ("cpu", "cpu:1")
    model, given, taken = (tmp_path / name for name in ("model.so", "in.npz", "out.npz"))
    compiled.export(model)
    np.savez(given, x)
    run("collage.testing.deployed_process", [str(model), str(given), str(taken)])
    with np.load(taken) as outputs:
        for name, wanted in zip(outputs.files, expected(x), strict=True):
            np.testing.assert_allclose(outputs[name], wanted, rtol=1e-5, atol=1e-6)


def test_one_device_has_no_copies() -> None:
    places = [("tvm", [0]), ("tvm", [1]), ("tvm", [2]), ("tvm", [3]), (HOST, [4]), ("tvm", [5]), (HOST, [6])]
    compiled = build(partitioned(places), BACKENDS.values(), threads=1, home="cpu")
    assert "devices" not in compiled.metadata


def test_tvm_compiles_for_the_first_device_only() -> None:
    places = [("tvm", [0]), ("second", [1, 2, 3]), (HOST, [4]), ("second", [5]), (HOST, [6])]
    with pytest.raises(CodegenError, match="compiled for cpu:1 only"):
        build(partitioned(places), BACKENDS.values(), threads=1, home="cpu:1")
