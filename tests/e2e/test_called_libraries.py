"""RFC 0062's third tree, from measuring to a fresh process: partitions of TVM's kernels that call oneDNN."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax

import collage
from collage import plugins
from collage.backends.base import Backend
from collage.backends.tvm.backend import TVMBackend
from collage.cost.estimator import Workload
from collage.graph.candidates import CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.from_relax import read_graph
from collage.graph.kinds import OpKind
from collage.graph.sub_graph import SubGraphConfig
from collage.measure.workloads import WorkloadFactory
from collage.records import RecordDatabase
from collage.rules import (
    NATIVE_KIND_TABLE,
    CalledPartitionRule,
    CombineByKind,
    CombinePartitionRule,
    OnlyValidPartitionRule,
    OpCallByKindPartitionRule,
    PartitionRule,
    UnionPartitionRule,
)
from collage.rules.base import PartitionSpec
from collage.testing.fresh import run
from estimators.cost_model.names import model_name
from estimators.features.batch import Roofline, Task, features_of

ROWS, COLUMNS = 32, 48
LABEL = "onednn:onednn.matmul_bias"


@dataclass(frozen=True)
class WholeAndCalling(PartitionRule):
    """Of another rule, what takes all of a network and calls the library for its product and its bias."""

    rule: PartitionRule

    def all_candidates(self, graph: DataflowGraph, spec: PartitionSpec) -> list[CandidatePartition]:
        found = self.rule.all_candidates(graph, spec)
        whole = (c for c in found if c.sub_graph.inside == graph.coverable)
        return [c for c in whole if [label for label, _ in c.composites] == [LABEL]]


def backend() -> Backend:
    """The tree of the RFC, with combiners that also join what comes before a product."""
    plain = TVMBackend(libraries=["onednn"])
    begin = UnionPartitionRule(
        OpCallByKindPartitionRule(), CalledPartitionRule("onednn", plain.libraries["onednn"].partition_rule)
    )
    combiners = (*NATIVE_KIND_TABLE, CombineByKind(OpKind.BROADCAST, OpKind.ANCHOR))
    tree = OnlyValidPartitionRule(CombinePartitionRule(begin, combiners), SubGraphConfig(max_exits=1))
    return plain.with_rule(WholeAndCalling(tree))


def network() -> Any:
    """exp(|x| W + b) in which each operator is one of Relax."""
    rng = np.random.default_rng(0)
    weight, bias = (relax.const(rng.uniform(-0.1, 0.1, s).astype("float32")) for s in ((COLUMNS, 40), (40,)))
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((ROWS, COLUMNS), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(builder.emit(relax.op.abs(x)), weight))
            result = builder.emit_output(relax.op.exp(builder.emit(relax.op.add(product, bias))))
        builder.emit_func_output(result)
    return builder.get()


@dataclass(frozen=True)
class Found:
    module: Any
    plan: Any
    records: Path


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    records = tmp_path_factory.mktemp("called") / "records.db"
    module = collage.load(network())
    plan = collage.partition(
        module, [backend()], estimator="measured", threads=1, confirm_end_to_end=False, records=records
    )
    return Found(module, plan, records)


def given() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((ROWS, COLUMNS), dtype=np.float32)


def expected(module: Any, x: np.ndarray) -> np.ndarray:
    constants = [node.expr.value.numpy() for node in read_graph(module).nodes if hasattr(node.expr, "value")]
    weight, bias = sorted((c for c in constants if c.size > 1), key=lambda array: -array.ndim)
    result: np.ndarray = np.exp(np.abs(x) @ weight + bias)
    return result


def test_it_is_one_partition_with_a_label_that_was_measured_as_one(found: Found) -> None:
    (partition,) = [p for p in found.plan.partitions if p.backend != "host"]
    assert [label for label, _ in partition.composites] == [LABEL] and partition.called == ("onednn",)
    assert partition.cost.is_finite and len(partition.operators) == 4
    assert "tvm, calls onednn" in found.plan.summary()
    with RecordDatabase(found.records) as database:
        assert [r.key.composites[0][0] for r in database.matching(kind="candidate")] == [LABEL]


def test_a_plan_from_its_file_calls_the_same_library_and_runs_in_a_fresh_process(found: Found, tmp_path: Path) -> None:
    found.plan.save(tmp_path / "plan.json")
    again = collage.Plan.load(tmp_path / "plan.json", found.module)
    assert list(again.backends["tvm"].libraries) == ["onednn"]
    model, inputs, outputs = (tmp_path / name for name in ("model.so", "in.npz", "out.npz"))
    compiled = again.compile()
    assert compiled.metadata["engines"] == ["onednn"]
    compiled.export(model)
    np.savez(inputs, given())
    run("collage.testing.deployed_process", [str(model), str(inputs), str(outputs)])
    with np.load(outputs) as data:
        np.testing.assert_allclose(data["arr_0"], expected(found.module, given()), rtol=1e-4, atol=1e-5)


def workload(found: Found) -> Workload:
    graph, calling = read_graph(found.module), backend()
    (candidate,) = PartitionSpec(calling.partition_rule, "tvm").candidates(graph)
    return WorkloadFactory(found.module, graph, {"tvm": calling}, threads=1).of(candidate)


def test_the_cost_model_has_features_of_it_and_a_prediction(found: Found) -> None:
    calling = workload(found)
    task = Task(calling.structure, calling.description, calling.composites, calling.threads)
    plain = Task(calling.structure, calling.description, (), calling.threads)
    table = features_of([task, plain], Roofline(1e11, 1e10))
    assert table.totals[0].tolist() != table.totals[1].tolist()
    assert model_name(calling) == "tvm+libraries"
    (cost,) = plugins.load("estimators", "learned").estimate([calling])
    assert cost.is_unknown, "no model was trained on partitions that call libraries"
