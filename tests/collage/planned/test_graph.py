"""The network and the candidates in a plan: read again, small, and true to the module."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tvm import relax

import collage
from collage.graph.from_relax import read_graph
from collage.planned.explanation import planned_graph
from collage.planned.file import read, to_dict, write
from collage.planned.graph import MEASURED, NOT_ASKED, PlannedNode, nodes_of, ranges_text
from tests.collage.planned.test_file import VERSION_2
from tests.collage.report.networks import with_network


@given(st.sets(st.integers(0, 99)))
def test_ranges_are_read_as_they_were_written(nodes: set[int]) -> None:
    assert nodes_of(ranges_text(nodes)) == tuple(sorted(nodes))


def test_a_plan_with_its_network_is_read_as_it_was_written(tmp_path: Path) -> None:
    data = with_network(3).data()
    write(data, tmp_path / "plan.json")
    again = read(tmp_path / "plan.json")
    assert (again.graph, again.candidates) == (data.graph, data.candidates)
    assert [p.precision for p in again.partitions] == [p.precision for p in data.partitions]


def test_rows_of_the_file_are_lines(tmp_path: Path) -> None:
    write(with_network(2).data(), tmp_path / "plan.json")
    lines = [line.strip() for line in (tmp_path / "plan.json").read_text().splitlines()]
    assert '["relax.add", [0, 9], "float32[1,64,56,56]", "", -1],' in lines
    assert '"nodes": [4, 5, 6],' in lines and '"backend": "openvino",' in lines


def test_a_file_of_old_has_no_network(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(VERSION_2))
    data = read(path)
    assert data.graph is None and data.candidates is None and data.partitions[0].precision == "float32"
    assert not {"graph", "candidates"} & set(to_dict(data))


@pytest.fixture(scope="module")
def module() -> tvm.IRModule:
    x = relax.Var("image", relax.TensorType((1, 4, 8, 8), "float32"))
    weight = relax.const(tvm.runtime.tensor(np.ones((4, 4, 3, 3), "float32")))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.conv2d(x, weight, padding=1))
            y = builder.emit(relax.op.nn.relu(relax.op.nn.conv2d(y, weight, padding=1)))
            z = builder.emit_output(relax.op.reshape(y, (1, 256)))
        builder.emit_func_output(z)
    return collage.load(builder.get())


def test_nodes_have_operators_types_names_and_attributes(module: tvm.IRModule) -> None:
    found = planned_graph(module, read_graph(module))
    ops = [node.op for node in found.nodes]
    first, second = (node for node in found.nodes if node.op == "relax.nn.conv2d")
    assert found.nodes[ops.index("input")] == PlannedNode("input", (), "float32[1,4,8,8]", "image")
    assert found.nodes[ops.index("constant")].type == "float32[4,4,3,3]"
    assert first.type == "float32[1,4,8,8]" and second.inputs[0] == found.nodes.index(first)
    assert first.attributes == second.attributes >= 0, "equal attributes are one entry"
    assert found.attributes[first.attributes]["padding"] == [1, 1, 1, 1]


@pytest.mark.long
def test_a_plan_says_what_its_partitions_were_chosen_from(module: tvm.IRModule, tmp_path: Path) -> None:
    plan = collage.partition(
        module,
        ["tvm", "onnxruntime"],
        estimator="measured",
        threads=1,
        records=tmp_path / "records.db",
        confirm_end_to_end=False,
    )
    found = plan.candidates
    assert found is not None and 0 < found.asked <= found.found and len(found.alike) == len(plan.partitions)
    for number, partition in enumerate(plan.partitions):
        if partition.backend == "host" or found.alike[number] != number:
            continue
        own = [c for c in found.listed if c.partition == number and nodes_of(c.nodes) == partition.nodes]
        chosen = next(c for c in own if c.backend == partition.backend)
        assert chosen.how == MEASURED and chosen.seconds == pytest.approx(partition.cost.seconds, rel=1e-3)
        assert all((c.seconds is None) == (c.how == NOT_ASKED) or c.reason for c in own)
    plan.save(tmp_path / "plan.json")
    assert (
        structs.asdict(collage.Plan.load(tmp_path / "plan.json", module).data()).keys()
        == structs.asdict(plan.data()).keys()
    )
    assert collage.Plan.load(tmp_path / "plan.json", module).graph == plan.graph
