"""Records are keyed by the code that made what they measured."""

from __future__ import annotations

import pytest

from collage.backends.onnxruntime import ONNXRuntimeBackend
from collage.backends.openvino import OpenVINOBackend
from collage.backends.source_digest import source_digest
from collage.backends.tvm import TVMBackend


def test_the_digest_depends_on_which_files_there_are() -> None:
    assert source_digest("backends/tvm*.py") == source_digest("backends/tvm*.py")
    assert source_digest("backends/tvm*.py") != source_digest("backends/openvino.py")


def test_a_pattern_without_files_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        source_digest("backends/no_such_backend*.py")


def test_every_backend_tells_the_code_that_it_builds_with() -> None:
    codes = [backend().configuration()["code"] for backend in (TVMBackend, OpenVINOBackend, ONNXRuntimeBackend)]
    assert len(set(codes)) == 3 and all(len(code) == 16 for code in codes)
