"""BackendConformance: the conditions that every backend meets, on small real networks.

Candidates are built and run as a tuning run does it, in processes of their own.
"""

from __future__ import annotations

import pickle
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import pytest
import tvm
import tvm_ffi

from collage.accuracy.calibration import calibrated
from collage.annotations.precision import INT8
from collage.backends.base import Availability, Backend, Style
from collage.backends.native import native_backend
from collage.compile.build import build
from collage.compile.rewrite import apply
from collage.cost.estimator import Samples
from collage.graph.candidates import HOST, CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.from_relax import read_graph
from collage.graph.index_set import IndexSet
from collage.graph.sub_graph import SubGraph
from collage.measure.artifact import prepare
from collage.measure.check import WRONG, wrong_numbers
from collage.measure.reference import ReferenceRun
from collage.measure.workloads import WorkloadFactory
from collage.records.key import canonical_json
from collage.rules.base import PartitionSpec
from collage.rules.host import runs_on_host
from collage.runtime.device_info import describe_device
from collage.search import execution_order
from collage.testing import fresh
from collage.testing.corrupted import CorruptedBackend
from collage.testing.measuring import is_refusal, samples_of, shifted, trials
from collage.testing.networks import NETWORKS, Network
from collage.testing.problems import has_cycle

_TOLERANCE = 1e-4
#: Relative L2 error of a small network with all products in eight bits.
_INT8_ERROR = 0.05


class BackendConformance(ABC):
    """Inherit, and define `make`.

    Attributes
    ----------
    networks
        Name -> what builds a canonical module; the backend has to take something of at least one of them.
    timeout_s
        Seconds after which a candidate that does not compile or answer has failed.
    instructions
        What processors call the instructions that the backend is for; one of them is needed, and where there is none
        what needs the backend is skipped: nothing that could be installed would change it.
    """

    networks: ClassVar[Mapping[str, Network]] = NETWORKS
    timeout_s: ClassVar[float] = 60.0
    instructions: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def make(self) -> Backend:
        """A new backend; all that a test makes are equal."""

    def available(self) -> Backend:
        """A backend that can be used; the test fails where it cannot, because nothing would be tested."""
        backend = self.make()
        state = backend.availability()
        if self.instructions and self.instructions.isdisjoint(describe_device("cpu").features):
            pytest.skip(state.reason)
        assert state.available, f"{backend.name} cannot be tested here: {state.reason}"
        return backend

    def test_says_what_it_is(self) -> None:
        backend = self.make()
        assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", backend.name) and backend.name != HOST
        assert backend.style in get_args(Style) and isinstance(backend.priority, int)
        assert backend.makes_blobs == (backend.style != "native") or backend.style == "library"
        state = backend.availability()
        assert isinstance(state, Availability) and (state.available or state.reason), "it says what is missing"

    def test_what_records_are_keyed_by_is_text_and_stays(self) -> None:
        backend, other = self.available(), self.available()
        assert backend.version() and backend.version() == other.version()
        assert canonical_json(backend.configuration()) == canonical_json(other.configuration())

    def test_can_be_pickled(self) -> None:
        backend = self.available()
        copy = pickle.loads(pickle.dumps(backend))
        assert (copy.name, copy.version()) == (backend.name, backend.version())
        assert canonical_json(copy.configuration()) == canonical_json(backend.configuration())

    def test_takes_something(self) -> None:
        backend = self.make()
        assert any(claims(backend, Subject(build_it())) for build_it in self.networks.values())

    def test_the_rule_gives_valid_candidates_and_each_once(self) -> None:
        """Of coverable nodes, convex, named after the backend, with disjoint library patterns inside."""
        backend = self.make()
        for name, build_it in self.networks.items():
            graph = Subject(build_it()).graph
            found = PartitionSpec(backend.partition_rule, backend.name).candidates(graph)
            assert len(set(found)) == len(found), f"{name}: a candidate was found twice"
            for c in found:
                assert c.backend == backend.name and c.sub_graph.graph is graph
                assert len(c.sub_graph.inside) > 0 and c.sub_graph.inside <= graph.coverable
                rest = [single(graph, i, "rest") for i in graph.coverable - c.sub_graph.inside]
                assert not has_cycle(graph, [c, *rest]), f"{name}: {c} is not convex: a path leaves and re-enters it"
                labelled = [node for _, nodes in c.composites for node in nodes]
                assert len(set(labelled)) == len(labelled) and set(labelled) <= set(c.sub_graph.inside)

    def test_the_rule_finds_the_same_again(self) -> None:
        for build_it in self.networks.values():
            subject = Subject(build_it())
            assert claims(self.make(), subject) == claims(self.make(), subject)

    def test_every_candidate_gives_the_right_numbers_or_is_refused(self, tmp_path: Path) -> None:
        """Refused with CodegenError; something has to work."""
        backend = self.available()
        worked = False
        with trials(tmp_path, self.timeout_s) as measure:
            for name, build_it in self.networks.items():
                subject = Subject(build_it())
                found = measure(subject.factory(backend), distinct(backend, subject))
                failed = {str(c): m.reason for c, m in found.items() if not m.valid and not is_refusal(m)}
                assert not failed, f"{name}: {failed}"
                worked = worked or any(m.valid for m in found.values())
        assert worked, "every candidate was refused"

    def test_wrong_numbers_are_found_out(self, tmp_path: Path) -> None:
        """A spoilt variant of the backend, or, where its kernels are TVM's, a reference that it misses by little."""
        backend, subject = self._subject()
        chosen = largest(backend, subject)
        spoilt = CorruptedBackend(backend) if backend.style == "graph" else backend
        factory = subject.factory(spoilt)
        expected: dict[CandidatePartition, Samples] = {}
        if spoilt is backend:
            expected[chosen] = shifted(samples_of(factory.of(chosen)), backend.tolerance)
        with trials(tmp_path, self.timeout_s) as measure:
            result = measure(factory, [chosen], expected)[chosen]
        assert not result.valid and result.reason.startswith(WRONG), result

    def test_code_generation_is_deterministic(self, tmp_path: Path) -> None:
        """The same blob twice, and the same module around it."""
        backend, subject = self._subject()
        workload = subject.factory(backend).of(largest(backend, subject))
        one, two = (prepare(workload, tmp_path / name) for name in ("one", "two"))
        for a, b in zip(one.artifact.blobs, two.artifact.blobs, strict=True):
            assert Path(a.path).read_bytes() == Path(b.path).read_bytes()
            assert (a.engine, a.options) == (b.engine, b.options)
        assert tvm_ffi.structural_equal(tvm.ir.load_json(one.module_json), tvm.ir.load_json(two.module_json))

    def test_an_exported_model_runs_in_a_fresh_process(self, tmp_path: Path) -> None:
        """The largest candidate on the backend, the rest on TVM, in one file."""
        backend, subject = self._subject()
        native = native_backend(backend.device)
        backends = {native.name: native, backend.name: backend}
        chosen = largest(backend, subject)
        cover = execution_order(subject.graph, [chosen, *subject.rest(chosen, native.name)])
        compiled = build(apply(subject.module, subject.graph, cover, backends), backends.values(), threads=1)
        compiled.export(tmp_path / "model.so")
        np.savez(tmp_path / "in.npz", *subject.run.inputs)
        paths = [str(tmp_path / name) for name in ("model.so", "in.npz", "out.npz")]
        fresh.run("collage.testing.deployed_process", paths)
        with np.load(paths[2]) as data:
            outputs = [data[name] for name in data.files]
        assert wrong_numbers(outputs, list(subject.run.outputs), max(_TOLERANCE, backend.tolerance)) is None

    def test_products_in_eight_bits_are_near_the_reference(self, tmp_path: Path) -> None:
        """All of the network and the candidate that have most of them: near enough, and not what it is without."""
        backend = self.available()
        plain = [s for s in map(Subject, (make() for make in self.networks.values())) if _in_int8(backend, s)]
        if not plain:
            return
        subject = max(plain, key=lambda s: len(_in_int8(backend, s)[0].composites[0][1])).calibrated()
        chosen = max(_in_int8(backend, subject), key=lambda c: len(c.composites[0][1]))
        workloads = [subject.factory(backend).of(c) for c in (replace(chosen, composites=()), chosen)]
        artifacts = [prepare(w, tmp_path / str(i)).artifact for i, w in enumerate(workloads)]
        one, other = (Path(artifact.blobs[0].path).read_bytes() for artifact in artifacts)
        assert one != other, f"{chosen} is not in eight bits"
        native = native_backend(backend.device)
        backends = {native.name: native, backend.name: backend}
        cover = execution_order(subject.graph, [chosen, *subject.rest(chosen, native.name)])
        compiled = build(apply(subject.module, subject.graph, cover, backends), backends.values(), threads=1)
        (exact,) = subject.run.outputs
        error = np.linalg.norm(np.asarray(compiled(*subject.run.inputs)) - exact) / np.linalg.norm(exact)
        assert error < _INT8_ERROR, f"{chosen} is off by {error:.1%}"

    def _subject(self) -> tuple[Backend, Subject]:
        """The backend, and the network of which it takes most nodes at once."""
        backend = self.available()
        subjects = [s for s in map(Subject, (make() for make in self.networks.values())) if claims(backend, s)]
        if not subjects:
            pytest.fail(f"{backend.name} takes nothing of {', '.join(self.networks)}")
        return backend, max(subjects, key=lambda s: len(largest(backend, s).sub_graph.inside))


class Subject:
    """A network, its graph, and one run of it on TVM."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.graph = read_graph(module)
        self.run = ReferenceRun(module, self.graph, threads=1)

    def calibrated(self) -> Subject:
        """The same with the ranges of its own run."""
        return Subject(calibrated(self.module, self.graph, [self.run]))

    def factory(self, backend: Backend) -> WorkloadFactory:
        return WorkloadFactory(self.module, self.graph, {backend.name: backend}, 1, self.run.values)

    def rest(self, chosen: CandidatePartition, native: str) -> list[CandidatePartition]:
        """All other nodes, one by one: on the host where they may be, else on this native backend."""
        others = self.graph.coverable - chosen.sub_graph.inside
        return [single(self.graph, i, HOST if runs_on_host(self.graph.nodes[i]) else native) for i in others]


def claims(backend: Backend, subject: Subject) -> list[CandidatePartition]:
    """What the backend would take of a network."""
    return PartitionSpec(backend.partition_rule, backend.name).candidates(subject.graph)


def _in_int8(backend: Backend, subject: Subject) -> list[CandidatePartition]:
    """What the backend would take of a network with products in eight bits, all of which are labelled."""
    found = ((c, backend.int8_nodes(subject.graph, c.sub_graph.inside)) for c in claims(backend, subject))
    return [replace(c, composites=((INT8, nodes),)) for c, nodes in found if nodes and backend.style == "graph"]


def distinct(backend: Backend, subject: Subject) -> list[CandidatePartition]:
    """One candidate of each structure."""
    factory = subject.factory(backend)
    return list({factory.of(c): c for c in reversed(claims(backend, subject))}.values())


def largest(backend: Backend, subject: Subject) -> CandidatePartition:
    """The candidate of most nodes, the first of several."""
    return max(claims(backend, subject), key=lambda c: len(c.sub_graph.inside))


def single(graph: DataflowGraph, node: int, backend: str) -> CandidatePartition:
    """One node on one backend."""
    return CandidatePartition(SubGraph(graph, IndexSet([node])), backend)
