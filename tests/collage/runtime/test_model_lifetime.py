"""When compiled models end: what is freed with the last reference, and what a forked process may do."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tvm import relax

import collage.runtime
from collage import plugins
from collage.compile.build import build
from collage.compile.rewrite import apply
from collage.errors import CompiledModelError
from collage.frontend import load
from collage.graph.candidates import CandidatePartition
from collage.graph.from_relax import read_graph
from collage.graph.sub_graph import SubGraph
from tests.collage.runtime.conftest import NAMES, Models, assert_right, rng, values


@pytest.mark.parametrize("name", ["openvino", "onnxruntime", "mixed", "engines"])
def test_a_model_that_is_dropped_takes_its_engines_along(
    models: Models, name: str, engines_made: list[weakref.ref[Any]]
) -> None:
    """Not what came from it: results, and bound calls, which hold it."""
    inputs = values()
    model = collage.runtime.load(models(name))
    results, call = model(*inputs), model.bind(inputs)
    del model
    gc.collect()
    assert engines_made and all(run() is not None for run in engines_made)
    assert_right(call(), inputs)
    del call
    gc.collect()
    assert all(run() is None for run in engines_made)
    assert_right(results, inputs)


@pytest.mark.long
def test_models_that_are_dropped_leave_no_memory_behind(tmp_path: Path) -> None:
    """A weight of 16 MiB is loaded again and again. Allocators keep what a few of them took, and no more."""
    builder, shape = relax.BlockBuilder(), (1, 1 << 22)
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    weight = relax.const(rng.standard_normal(shape).astype("float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(builder.emit(relax.op.add(x, weight)))
        builder.emit_func_output(out)
    for backend in ("tvm", "openvino", "onnxruntime"):
        on = plugins.load("backends", backend)
        module = load(builder.get())
        graph = read_graph(module)
        chosen = [CandidatePartition(SubGraph(graph, graph.coverable), backend)]
        path = tmp_path / f"{backend}.so"
        build(apply(module, graph, chosen, {backend: on}), [on], 2).export(path)
        code = (
            "import sys; import numpy as np, psutil; from collage.runtime import load\n"
            "x, held = np.ones((1, 1 << 22), np.float32), []\n"
            "for _ in range(24):\n"
            "    load(sys.argv[1])(x); held.append(psutil.Process().memory_info().rss >> 20)\n"
            "print(held[-1] - held[11])"
        )
        grown = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
        assert int(grown.stdout) < 200, f"{backend}: twelve models left {grown.stdout.strip()} MiB"


def in_a_fork(check: Callable[[], None]) -> int:
    """The status of a forked process in which the check passes: 0. It has twenty seconds."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        try:
            check()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]


@pytest.mark.parametrize("name", NAMES)
def test_a_fork_cannot_call_a_model_of_before(models: Models, name: str) -> None:
    model = collage.runtime.load(models(name))
    call, inputs = model.bind(), values()
    model(*inputs)

    def check() -> None:
        for attempt in (call, lambda: model(*inputs)):
            with pytest.raises(CompiledModelError, match="forked"):
                attempt()

    assert in_a_fork(check) == 0
    assert_right(model(*inputs), inputs)


@pytest.mark.parametrize("name", NAMES)
def test_a_fork_can_drop_a_model_of_before(models: Models, name: str) -> None:
    """Engines wait for their threads when they are destroyed, and these stayed behind."""
    path, inputs = models(name), values()
    loaded = [collage.runtime.load(path)]
    loaded[0](*inputs)

    def check() -> None:
        loaded.clear()
        gc.collect()
        assert_right(collage.runtime.load(path)(*inputs), inputs)

    assert in_a_fork(check) == 0
    assert_right(loaded[0](*inputs), inputs)


@pytest.mark.parametrize("name", NAMES)
def test_a_fork_can_load_a_model_again(models: Models, name: str) -> None:
    path, inputs = models(name), values()
    collage.runtime.load(path)(*inputs)
    assert in_a_fork(lambda: assert_right(collage.runtime.load(path)(*inputs), inputs)) == 0
