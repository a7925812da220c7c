"""Backends that share their threads are searched by themselves, too."""

from __future__ import annotations

from dataclasses import replace

from collage.backends.onednn.backend import OneDNNBackend
from collage.backends.onnx.onnxruntime import ONNXRuntimeBackend
from collage.backends.onnx.openvino import OpenVINOBackend
from collage.backends.tvm.backend import TVMBackend
from collage.backends.winograd import WinogradBackend
from collage.graph.candidates import HOST
from collage.search.thread_pools import shared_pools
from tests.searchers.problems import candidate, graph_of, problem_of

OURS = [TVMBackend(), OneDNNBackend(), WinogradBackend()]


def test_those_on_tvms_threads_are_one_set() -> None:
    assert shared_pools([*OURS, OpenVINOBackend(), ONNXRuntimeBackend()]) == [{"tvm", "onednn", "winograd"}]


def test_a_set_of_all_or_of_one_is_none() -> None:
    assert shared_pools(OURS) == shared_pools([TVMBackend(), OpenVINOBackend(), ONNXRuntimeBackend()]) == []


def test_a_problem_of_some_backends_keeps_the_host_and_what_is_known() -> None:
    graph = graph_of([[], [0]])
    ours, other, host = candidate(graph, "a", [0]), candidate(graph, "b", [0]), candidate(graph, HOST, [1])
    problem = problem_of(graph, {ours: 1.0, other: 2.0, host: 0.0})
    problem.costs([ours])
    some = replace(problem, candidates=problem.candidates.of_backends({"a"}))
    assert set(some.candidates) == {ours, host} and some.known(ours) == problem.cost(ours)
