"""Plans whose partitions have products in eight bits: saved, loaded, and edited by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from tvm import relax

import collage
from collage import plugins
from collage.annotations.precision import INT8
from collage.errors import PlanError
from collage.graph.description import describe_module, structure_hash
from collage.graph.from_relax import read_graph
from collage.graph.index_set import IndexSet
from collage.planned.data import PlanData, PlannedPartition
from collage.planned.file import read, write

ENGINES = ("onnxruntime", "openvino")
Labels = tuple[tuple[str, tuple[int, ...]], ...]


@pytest.fixture(scope="module")
def network() -> Any:
    """Two products with a relu between."""
    rng = np.random.default_rng(0)
    first, second = (relax.const(rng.uniform(-1, 1, (8, 8)).astype(np.float32)) for _ in range(2))
    x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            hidden = builder.emit(relax.op.nn.relu(builder.emit(relax.op.matmul(x, first))))
            result = builder.emit_output(relax.op.matmul(hidden, second))
        builder.emit_func_output(result)
    return collage.load(builder.get())


def saved(network: Any, path: Path, backend: str, labels: Labels) -> Path:
    """A plan of one partition."""
    graph = read_graph(network)
    nodes = tuple(graph.coverable)
    part = PlannedPartition(backend, nodes, tuple(graph.nodes[i].op for i in nodes), labels)
    data = PlanData(
        network=structure_hash(describe_module(network)),
        choice="collage",
        threads=1,
        versions={backend: plugins.load("backends", backend).version()},
        partitions=(part,),
    )
    write(data, path / "plan.json")
    return path / "plan.json"


@pytest.mark.parametrize("backend", [*ENGINES, "openvino-bf16"])
def test_labels_are_kept(network: Any, tmp_path: Path, backend: str) -> None:
    if reason := plugins.load("backends", backend).availability().reason:
        pytest.skip(reason)
    first, _, last = read_graph(network).coverable
    path = saved(network, tmp_path, backend, ((INT8, (first, last)),))
    plan = collage.Plan.load(path, network)
    (candidate,) = plan.placement(read_graph(network))
    assert candidate.composites == ((INT8, IndexSet([first, last])),)
    plan.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == path.read_text()


@pytest.mark.parametrize("backend", ENGINES)
def test_labels_that_were_edited_decide_what_is_in_eight_bits(network: Any, tmp_path: Path, backend: str) -> None:
    first, _, last = read_graph(network).coverable
    path = saved(network, tmp_path, backend, ())
    x = np.random.default_rng(1).uniform(-1, 1, (4, 8)).astype(np.float32)
    results = []
    for labels in ((), ((INT8, (first,)),), ((INT8, (first, last)),)):
        data = read(path)
        write(structs.replace(data, partitions=(structs.replace(data.partitions[0], composites=labels),)), path)
        results.append(np.asarray(collage.Plan.load(path, network).compile()(x)))
    exact = np.linalg.norm(results[0])
    errors = [float(np.linalg.norm(result - results[0]) / exact) for result in results]
    assert errors[0] == 0 < errors[1] < errors[2] < 0.1  # each product adds its own


@pytest.mark.parametrize(
    ("backend", "label", "position", "message"),
    [
        ("openvino", INT8, 1, r"partition 0, on openvino: cannot compute in int8: node \d+ \(relax.nn.relu\)"),
        ("onnxruntime", INT8, 99, r"node 99 \(not inside\); take it out of `composites`"),
        ("onnxruntime", "int4", 0, r"on onnxruntime: it has no patterns, and 'int4' is none: only 'int8'"),
    ],
)
def test_labels_that_a_backend_cannot_take_are_refused(
    network: Any, tmp_path: Path, backend: str, label: str, position: int, message: str
) -> None:
    nodes = list(read_graph(network).coverable)
    node = nodes[position] if position < len(nodes) else position
    path = saved(network, tmp_path, backend, ((label, (node,)),))
    with pytest.raises(PlanError, match=message) as raised:
        collage.Plan.load(path, network)
    assert "\n" not in str(raised.value) and str(path) in str(raised.value)
