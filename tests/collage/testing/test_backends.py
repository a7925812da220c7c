"""The backends of this repository conform, and backends that are wrong are found out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from collage.annotations.precision import INT8_POSITIONS, INT8_RANGES
from collage.backends.base import Availability, Backend
from collage.backends.onednn.backend import OneDNNBackend
from collage.backends.onednn.bf16 import OneDNNBf16Backend
from collage.backends.onednn.int8 import OneDNNInt8Backend
from collage.backends.onnx.onnxruntime import ONNXRuntimeBackend
from collage.backends.onnx.openvino import OpenVINOBackend
from collage.backends.onnx.openvino_bf16 import OpenVINOBf16Backend
from collage.backends.tvm.backend import TVMBackend
from collage.backends.winograd import WinogradBackend
from collage.errors import CodegenError
from collage.graph.candidates import CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.rules.base import PartitionRule, PartitionSpec, candidate_of
from collage.testing import BackendConformance
from collage.testing.networks import Network, attention, convolutions, look_up, one_operator
from tests.collage.testing.running import failure
from tests.e2e import faulty


@pytest.mark.slow
class TestTVM(BackendConformance):
    def make(self) -> Backend:
        return TVMBackend()


class TestOpenVINO(BackendConformance):
    def make(self) -> Backend:
        return OpenVINOBackend()


class TestOpenVINOBf16(BackendConformance):
    instructions = frozenset(("avx512_bf16", "amx_bf16", "bf16"))

    def make(self) -> Backend:
        return OpenVINOBf16Backend()


class TestONNXRuntime(BackendConformance):
    def make(self) -> Backend:
        return ONNXRuntimeBackend()


class TestOneDNN(BackendConformance):
    def make(self) -> Backend:
        return OneDNNBackend()


class TestOneDNNBf16(BackendConformance):
    instructions = OneDNNBf16Backend.instructions

    def make(self) -> Backend:
        return OneDNNBf16Backend()


class TestOneDNNInt8(BackendConformance):
    instructions = OneDNNInt8Backend.instructions

    def make(self) -> Backend:
        return OneDNNInt8Backend()


class TestWinograd(BackendConformance):
    def make(self) -> Backend:
        return WinogradBackend()


class AllButTheMiddle(PartitionRule):
    """Candidates whose path leaves and re-enters them."""

    def all_candidates(self, graph: DataflowGraph, spec: PartitionSpec) -> list[CandidatePartition]:
        first, *_, last = graph.coverable
        return [candidate_of(graph, spec, [first, last])]


class Twice(PartitionRule):
    def all_candidates(self, graph: DataflowGraph, spec: PartitionSpec) -> list[CandidatePartition]:
        return [candidate_of(graph, spec, [graph.coverable.first])] * 2


class Alternates(PartitionRule):
    """Another answer every time."""

    count = 0

    def all_candidates(self, graph: DataflowGraph, spec: PartitionSpec) -> list[CandidatePartition]:
        Alternates.count += 1
        return [candidate_of(graph, spec, [list(graph.coverable)[Alternates.count % 2]])]


class Nothing(PartitionRule):
    def all_candidates(self, graph: DataflowGraph, spec: PartitionSpec) -> list[CandidatePartition]:
        return []


class NotConvex(ONNXRuntimeBackend):
    def rule(self) -> PartitionRule:
        return AllButTheMiddle()


class FindsTwice(ONNXRuntimeBackend):
    def rule(self) -> PartitionRule:
        return Twice()


class FindsAnother(ONNXRuntimeBackend):
    def rule(self) -> PartitionRule:
        return Alternates()


class TakesNothing(ONNXRuntimeBackend):
    def rule(self) -> PartitionRule:
        return Nothing()


class SaysNothing(ONNXRuntimeBackend):
    def availability(self) -> Availability:
        return Availability(False)


class BadName(ONNXRuntimeBackend):
    name: ClassVar[str] = "on nx"


class ConfiguredByObjects(ONNXRuntimeBackend):
    def configuration(self) -> dict[str, Any]:
        return {"session": object()}


class NotPicklable(ONNXRuntimeBackend):
    def __init__(self) -> None:
        self.make_session = lambda: None


class OtherBlobs(ONNXRuntimeBackend):
    """A time stamp in the blob, say."""

    count = 0

    def engine_blob(self, function: Any) -> bytes:
        OtherBlobs.count += 1
        return super().engine_blob(function) + bytes([OtherBlobs.count])


class RefusesSome(ONNXRuntimeBackend):
    """Refuses softmax and layer norm, as it may."""

    def engine_blob(self, function: Any) -> bytes:
        if "softmax" in str(function) or "layer_norm" in str(function):
            raise CodegenError("no softmax today")
        return super().engine_blob(function)


class IgnoresLabels(ONNXRuntimeBackend):
    """Computes in float32 what is to be in eight bits."""

    def engine_blob(self, function: Any) -> bytes:
        return super().engine_blob(function.without_attr(INT8_POSITIONS))


class WrongRanges(ONNXRuntimeBackend):
    """Saturates nearly everything."""

    def engine_blob(self, function: Any) -> bytes:
        if function.attrs and INT8_RANGES in function.attrs:
            function = function.with_attr(INT8_RANGES, [0.2 * float(end) for end in function.attrs[INT8_RANGES]])
        return super().engine_blob(function)


class EngineOfTheCompiler(ONNXRuntimeBackend):
    """Works where it was built, and nowhere else."""

    engine: ClassVar[str] = "collage_module_that_is_only_here:create"


#: Where one operator is not enough to see the defect.
NETWORKS_OF: dict[type[Backend], dict[str, Network]] = {
    RefusesSome: {"attention": attention, "one_operator": one_operator},
    NotConvex: {"look_up": look_up},
    FindsAnother: {"look_up": look_up},
    IgnoresLabels: {"convolutions": convolutions},
    WrongRanges: {"convolutions": convolutions},
}
RIGHT = "test_every_candidate_gives_the_right_numbers_or_is_refused"
EIGHT_BITS = "test_products_in_eight_bits_are_near_the_reference"
VALID = "test_the_rule_gives_valid_candidates_and_each_once"
BROKEN: list[tuple[type[Backend], str, str]] = [
    (faulty.GivesWrongNumbers, RIGHT, "wrong result"),
    (faulty.RaisesAtRun, RIGHT, "on fire"),
    (faulty.Aborts, RIGHT, "SIGABRT"),
    (faulty.SleepsForEver, RIGHT, "hangs"),
    (faulty.RaisesAtCodegen, RIGHT, "every candidate was refused"),
    (NotConvex, VALID, "not convex"),
    (FindsTwice, VALID, "found twice"),
    (FindsAnother, "test_the_rule_finds_the_same_again", "AssertionError"),
    (TakesNothing, "test_takes_something", "AssertionError"),
    (SaysNothing, "test_says_what_it_is", "what is missing"),
    (BadName, "test_says_what_it_is", "on nx"),
    (ConfiguredByObjects, "test_what_records_are_keyed_by_is_text_and_stays", "cannot hold a value of type object"),
    (NotPicklable, "test_can_be_pickled", "pickle"),
    (OtherBlobs, "test_code_generation_is_deterministic", "AssertionError"),
    (IgnoresLabels, EIGHT_BITS, "is not in eight bits"),
    (WrongRanges, EIGHT_BITS, "is off by"),
    (EngineOfTheCompiler, "test_an_exported_model_runs_in_a_fresh_process", "collage_module_that_is_only_here"),
]


@pytest.mark.parametrize(("cls", "test", "reason"), BROKEN, ids=[cls.__name__ for cls, *_ in BROKEN])
def test_a_backend_that_is_wrong_fails(cls: type[Backend], test: str, reason: str, tmp_path: Path) -> None:
    found = failure(_suite(cls), test, tmp_path)
    assert found is not None and reason in found


def test_a_backend_may_refuse_candidates(tmp_path: Path) -> None:
    assert failure(_suite(RefusesSome), RIGHT, tmp_path) is None


def test_a_backend_that_is_not_installed_fails_and_is_not_skipped() -> None:
    found = failure(_suite(SaysNothing), "test_can_be_pickled")
    assert found is not None and "cannot be tested here" in found


def test_a_backend_whose_instructions_the_processor_lacks_is_skipped_and_not_passed() -> None:
    suite = _suite(SaysNothing)
    type(suite).instructions = frozenset(("no processor's",))
    with pytest.raises(pytest.skip.Exception):
        suite.available()


def _suite(cls: type[Backend]) -> BackendConformance:
    class Suite(BackendConformance):
        networks = NETWORKS_OF.get(cls, {"one_operator": one_operator})
        timeout_s = 2.0 if cls is faulty.SleepsForEver else 60.0

        def make(self) -> Backend:
            return cls()

    return Suite()
