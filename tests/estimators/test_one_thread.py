"""TVM lowers one network at a time in a process: tags of TE's operators are global, and a second thread that lowers
fails now and then with "nested op_tag is not allowed". Whatever is done side by side is done by other processes.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tvm import relax

import collage
from collage.backends.onnx.onnxruntime import ONNXRuntimeBackend
from collage.backends.tvm.backend import TVMBackend
from collage.graph.from_relax import read_graph
from collage.measure import transitions, workers
from collage.measure.job import Job
from collage.measure.reference import ReferenceRun
from collage.measure.runner import Measurement
from collage.measure.transitions import transition_costs
from collage.measure.workloads import WorkloadFactory
from collage.progress import Reporter
from collage.records import RecordDatabase
from collage.rules.base import PartitionSpec
from collage.testing import networks
from estimators.measured import MeasuredEstimator
from tests.timing_process import NoProcess

SOURCES = Path(collage.__file__).parents[1]
#: What starts threads, none of which calls TVM: the CUDA compiler's processes are waited for.
STARTS_THREADS = {"collage/backends/cuda/cutlass/build.py"}
STARTERS = {"Thread", "Timer", "ThreadPool", "ThreadPoolExecutor", "start_new_thread", "to_thread", "run_in_executor"}


def test_no_module_starts_threads_in_which_tvm_could_lower() -> None:
    files = [path for folder in ("collage", "estimators", "searchers") for path in (SOURCES / folder).rglob("*.py")]
    found = {str(path.relative_to(SOURCES)) for path in files if _starts_threads(ast.parse(path.read_text()))}
    assert found <= STARTS_THREADS


def _starts_threads(tree: ast.AST) -> bool:
    names = {ast.Name: "id", ast.Attribute: "attr", ast.alias: "name"}
    return any(getattr(node, names.get(type(node), ""), "") in STARTERS for node in ast.walk(tree))


class Process(NoProcess):
    """Stands for the timing process: everything takes a second."""

    def __init__(self, threads: int, timeout_s: float) -> None:
        self.threads = threads

    def measure(self, job: Job) -> list[Measurement]:
        assert {artifact.device for artifact in job.artifacts} == {job.device}
        return [Measurement((1.0,) * 7) for _ in job.artifacts]


@pytest.fixture
def lowered_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[int]]:
    """The threads in which operators were legalised; nothing is timed, and nothing compiled in other processes."""
    threads: set[int] = set()
    legalise = relax.transform.LegalizeOps

    def noted(*arguments: Any) -> Any:
        threads.add(threading.get_ident())
        return legalise(*arguments)

    def built(preparations: Any, *_: Any) -> list[Any]:
        return [preparation.artifact for preparation in preparations]

    monkeypatch.setattr(relax.transform, "LegalizeOps", noted)
    monkeypatch.setattr(workers, "Runner", Process)
    monkeypatch.setattr(workers, "build_all", built)
    monkeypatch.setattr(transitions, "Runner", Process)
    monkeypatch.setattr(transitions, "SHAPES", [(1, 8, 8, 8)])
    monkeypatch.setattr("collage.measure.probe.build_all", built)
    yield threads


def test_candidates_and_their_references_are_lowered_in_one_thread(lowered_in: set[int], tmp_path: Path) -> None:
    module = networks.branches()
    graph = read_graph(module)
    reference = ReferenceRun(module, graph, threads=1)
    backends = {b.name: b for b in (TVMBackend(), ONNXRuntimeBackend())}
    factory = WorkloadFactory(module, graph, backends, 1, reference.values)
    specs = [PartitionSpec(b.partition_rule, name) for name, b in backends.items()]
    workloads = list(dict.fromkeys(factory.of(c) for spec in specs for c in spec.candidates(graph)))
    MeasuredEstimator(tmp_path / "records.db").estimate(workloads[:6])
    assert lowered_in == {threading.get_ident()}


def test_references_of_transitions_are_lowered_in_one_thread(lowered_in: set[int], tmp_path: Path) -> None:
    with RecordDatabase(tmp_path / "records.db") as records:
        transition_costs([TVMBackend(), ONNXRuntimeBackend()], 1, records, Reporter())
    assert lowered_in == {threading.get_ident()}
