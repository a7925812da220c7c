"""Plans over two devices, compiled: copies stand only where the device differs, each once, and numbers are right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import collage
from collage.backends.base import Backend
from collage.backends.tvm.backend import TVMBackend
from collage.compile.build import build
from collage.compile.copies import owners_of, with_copies
from collage.compile.rewrite import apply
from collage.deployed.plan_runner import partition_seconds
from collage.graph.candidates import HOST, CandidatePartition
from collage.graph.from_relax import read_graph
from collage.graph.index_set import IndexSet
from collage.graph.sub_graph import SubGraph
from collage.measure.instrument import spans
from collage.measure.watching import COPY
from collage.runtime import engines
from collage.runtime.engines.weights import ENGINE as WEIGHTS
from collage.search import execution_order
from collage.testing.fresh import run
from tests.e2e.two_devices.backend import SecondDevice, SecondNative

SHAPE = (4, 16)
BACKENDS: dict[str, Backend] = {b.name: b for b in (TVMBackend(), SecondDevice(), SecondNative())}
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
    return with_copies(module, owners_of(module, DEVICES), "cpu").module


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
        [("second-tvm", [0, 1]), ("second", [2]), ("tvm", [3]), (HOST, [4]), ("second-tvm", [5]), (HOST, [6])],
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


def test_the_first_device_may_be_any() -> None:
    places = [("tvm", [0]), ("second", [1, 2, 3]), (HOST, [4]), ("second-tvm", [5]), (HOST, [6])]
    compiled = build(partitioned(places), BACKENDS.values(), threads=1, home="cpu:1")
    x = np.random.default_rng(0).standard_normal(SHAPE, dtype=np.float32)
    for output, wanted in zip(compiled(x), expected(x), strict=True):
        np.testing.assert_allclose(output, wanted, rtol=1e-5, atol=1e-6)


def test_copies_are_timed_apart_from_partitions() -> None:
    """In a run they are calls of their own, which no partition is charged for."""
    places = [("tvm", [0]), ("second", [1]), ("second", [2]), ("tvm", [3]), (HOST, [4]), ("tvm", [5]), (HOST, [6])]
    model = build(partitioned(places), BACKENDS.values(), threads=1, home="cpu")
    engines.register()
    machine = relax.VirtualMachine(model.executable, [tvm.cpu(0), tvm.cpu(1)])
    x = tvm.runtime.tensor(np.ones(SHAPE, np.float32))
    seen = [span.symbol for span in spans(machine, lambda: machine["main"](x))]
    assert seen.count(COPY) == 3
    graph = read_graph(collage.load(network()))
    order = list(graph.coverable)
    placement = [CandidatePartition(SubGraph(graph, IndexSet(order[i] for i in at)), name) for name, at in places]
    seconds = partition_seconds([(symbol, 1000.0 if symbol == COPY else 1.0) for symbol in seen], placement)
    assert len(seconds) == 5 and max(seconds) < 1000


def test_kernels_of_two_devices_are_no_one_kernel() -> None:
    """relu on the first device and on the second: equal, and compiled for each."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.nn.relu(builder.emit(relax.op.nn.relu(x))))
        builder.emit_func_output(out)
    module = builder.get()
    graph = read_graph(module)
    one, other = graph.coverable
    cover = [
        CandidatePartition(SubGraph(graph, IndexSet([one])), "tvm"),
        CandidatePartition(SubGraph(graph, IndexSet([other])), "second-tvm"),
    ]
    owners = owners_of(apply(module, graph, cover, BACKENDS), DEVICES)
    assert sorted(owners.values()) == ["cpu", "cpu:1"]


def test_weights_of_kernels_on_the_second_device_are_brought_there_once(tmp_path: Path) -> None:
    """A product on each device, with a weight that both read."""
    weight = np.random.default_rng(0).standard_normal((16, 16), dtype=np.float32)
    shared, builder = relax.const(weight), relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            first = builder.emit(relax.op.matmul(x, shared))
            second = builder.emit(relax.op.matmul(first, shared))
            out = builder.emit_output(relax.op.matmul(second, relax.const(weight + 1)))
        builder.emit_func_output(out)
    module = builder.get()
    graph = read_graph(module)
    names = dict(zip(graph.coverable, ("tvm", "second-tvm", "second-tvm"), strict=True))
    cover = [CandidatePartition(SubGraph(graph, IndexSet([i])), name) for i, name in names.items()]
    made = apply(module, graph, cover, BACKENDS)
    placed = with_copies(made, owners_of(made, DEVICES), "cpu")
    assert {device: len(arrays) for device, (_, arrays) in placed.weights.items()} == {"cpu:1": 2}
    assert len(copies(placed.module)) == 2  # there, and the result back; no weight
    compiled = build(made, BACKENDS.values(), threads=1, home="cpu")
    assert compiled.metadata["engines"] == [WEIGHTS]
    array = np.random.default_rng(1).standard_normal(SHAPE, dtype=np.float32)
    model, given, taken = (tmp_path / name for name in ("model.so", "in.npz", "out.npz"))
    compiled.export(model)
    np.savez(given, array)
    run("collage.testing.deployed_process", [str(model), str(given), str(taken)])
    with np.load(taken) as outputs:
        np.testing.assert_allclose(outputs["arr_0"], array @ weight @ weight @ (weight + 1), rtol=1e-3, atol=1e-3)
