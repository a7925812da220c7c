"""Backends that share their threads are searched by themselves, too."""

from __future__ import annotations

from collage.backends.onednn import OneDNNBackend
from collage.backends.onnxruntime import ONNXRuntimeBackend
from collage.backends.openvino import OpenVINOBackend
from collage.backends.tvm import TVMBackend
from collage.backends.winograd import WinogradBackend
from collage.pools import shared_pools

OURS = [TVMBackend(), OneDNNBackend(), WinogradBackend()]


def test_those_on_tvms_threads_are_one_set() -> None:
    assert shared_pools([*OURS, OpenVINOBackend(), ONNXRuntimeBackend()]) == [{"tvm", "onednn", "winograd"}]


def test_a_set_of_all_or_of_one_is_none() -> None:
    assert shared_pools(OURS) == shared_pools([TVMBackend(), OpenVINOBackend(), ONNXRuntimeBackend()]) == []
