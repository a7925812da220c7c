"""Engines run ONNX models on the caller's buffers: whatever their number, dtype, rank, alignment or order of use."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
import tvm_ffi
from onnx import TensorProto, helper, numpy_helper

from collage.errors import CompiledModelError
from collage.runtime import engines

ENGINES = ("openvino", "onnxruntime")
_ONNX = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "int32": TensorProto.INT32, "bool": TensorProto.BOOL}
Port = tuple[str, tuple[int, ...], str]


def blob(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    constants: dict[str, np.ndarray] | None = None,
) -> bytes:
    """A serialised ONNX model."""

    def infos(ports: Sequence[Port]) -> list[Any]:
        return [helper.make_tensor_value_info(name, _ONNX[dtype], shape) for name, shape, dtype in ports]

    initializers = [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "g", infos(inputs), infos(outputs), initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def relu(shape: tuple[int, ...] = (2, 3)) -> bytes:
    return blob([helper.make_node("Relu", ["x"], ["y"])], [("x", shape, "float32")], [("y", shape, "float32")])


def tensor(value: Any, dtype: str = "float32") -> Any:
    return tvm.runtime.tensor(np.asarray(value, dtype=dtype))


def unaligned(array: np.ndarray) -> Any:
    """A TVM tensor on an array's own memory, which TVM by itself takes only when it is aligned to 64 bytes."""
    return tvm_ffi.from_dlpack(array, require_alignment=0)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_writes_the_outputs_and_leaves_the_inputs(engine: str) -> None:
    run = engines.create(engine, relu(), {"threads": 1})
    x, y = tensor([[-1, 2, -3], [4, -5, 6]]), tensor(np.full((2, 3), 9))
    assert run(x, y) is None
    np.testing.assert_array_equal(y.numpy(), [[0, 2, 0], [4, 0, 6]])
    np.testing.assert_array_equal(x.numpy(), [[-1, 2, -3], [4, -5, 6]])


def test_sees_new_values_in_the_same_buffers(engine: str) -> None:
    run = engines.create(engine, relu(), {"threads": 1})
    x, y = tensor(np.ones((2, 3))), tensor(np.zeros((2, 3)))
    for value in (1.0, -1.0, 3.0):
        np.from_dlpack(x)[:] = value
        run(x, y)
        np.testing.assert_array_equal(y.numpy(), np.full((2, 3), max(value, 0)))


def test_follows_buffers_that_change(engine: str) -> None:
    run = engines.create(engine, relu(), {"threads": 1})
    inputs = [tensor(np.full((2, 3), i)) for i in range(1, 200)]
    outputs = [tensor(np.zeros((2, 3))) for _ in range(3)]
    for step, x in enumerate([*inputs, *inputs[:5]]):
        y = outputs[step % 3]
        run(x, y)
        np.testing.assert_array_equal(y.numpy(), x.numpy())


def test_swapped_buffers(engine: str) -> None:
    run = engines.create(engine, relu(), {"threads": 1})
    a, b = tensor(np.ones((2, 3))), tensor(np.zeros((2, 3)))
    run(a, b)
    np.from_dlpack(b)[:] = 5
    run(b, a)
    np.testing.assert_array_equal(a.numpy(), np.full((2, 3), 5))


def test_holds_no_buffer_between_calls(engine: str) -> None:
    """The virtual machine gets its memory back: a tensor that the engine has seen is freed with its last reference."""
    run = engines.create(engine, relu((1 << 16,)), {"threads": 1})
    memory = np.zeros(1 << 16, dtype=np.float32)
    watched = weakref.ref(memory)
    x, y = unaligned(memory), tensor(np.zeros(1 << 16))
    run(x, y)
    del memory, x
    gc.collect()
    assert watched() is None


def test_an_input_may_be_an_output(engine: str) -> None:
    model = blob(
        [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["z"])],
        [("x", (3,), "float32")],
        [("y", (3,), "float32"), ("z", (3,), "float32")],
    )
    run = engines.create(engine, model, {"threads": 1})
    y, z = tensor(np.zeros(3)), tensor(np.zeros(3))
    run(tensor([1, 2, 3]), y, z)
    np.testing.assert_array_equal(y.numpy(), [1, 2, 3])
    np.testing.assert_array_equal(z.numpy(), [-1, -2, -3])


def test_one_value_may_be_several_outputs(engine: str) -> None:
    model = blob(
        [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Identity", ["y"], ["z"])],
        [("x", (3,), "float32")],
        [("y", (3,), "float32"), ("z", (3,), "float32")],
    )
    run = engines.create(engine, model, {"threads": 1})
    y, z = tensor(np.zeros(3)), tensor(np.zeros(3))
    for scale in (1.0, 2.0):
        run(tensor([scale, 2, 3]), y, z)
        np.testing.assert_array_equal(y.numpy(), [-scale, -2, -3])
        np.testing.assert_array_equal(z.numpy(), [-scale, -2, -3])


def test_a_constant_may_be_an_output(engine: str) -> None:
    model = blob(
        [helper.make_node("Identity", ["c"], ["y"]), helper.make_node("Add", ["x", "c"], ["z"])],
        [("x", (2,), "float32")],
        [("y", (2,), "float32"), ("z", (2,), "float32")],
        {"c": np.array([5, 7], dtype=np.float32)},
    )
    run = engines.create(engine, model, {"threads": 1})
    y, z = tensor(np.zeros(2)), tensor(np.zeros(2))
    for _ in range(2):
        run(tensor([1, 1]), y, z)
        np.testing.assert_array_equal(y.numpy(), [5, 7])
        np.testing.assert_array_equal(z.numpy(), [6, 8])
        np.from_dlpack(y)[:] = 0  # the engine's own constant must not be what the output points to


def test_scalars(engine: str) -> None:
    ports = [("x", (), "float32"), ("y", (), "float32")]
    model = blob([helper.make_node("Add", ["x", "y"], ["z"])], ports, [("z", (), "float32")])
    run = engines.create(engine, model, {"threads": 1})
    z = tensor(0)
    run(tensor(2), tensor(3), z)
    assert z.numpy() == 5
    assert z.numpy().shape == ()


def test_integers_and_booleans(engine: str) -> None:
    model = blob(
        [
            helper.make_node("Less", ["a", "b"], ["less"]),
            helper.make_node("Where", ["less", "a", "b"], ["least"]),
            helper.make_node("Not", ["less"], ["more"]),
        ],
        [("a", (3,), "int64"), ("b", (3,), "int64")],
        [("less", (3,), "bool"), ("least", (3,), "int64"), ("more", (3,), "bool")],
    )
    run = engines.create(engine, model, {"threads": 1})
    less, least, more = tensor([0] * 3, "bool"), tensor([0] * 3, "int64"), tensor([1] * 3, "bool")
    run(tensor([1, 5, -7], "int64"), tensor([2, 4, -7], "int64"), less, least, more)
    assert less.numpy().tolist() == [True, False, False]
    assert least.numpy().tolist() == [1, 4, -7]
    assert more.numpy().tolist() == [False, True, True]


@pytest.mark.parametrize("offset", [1, 3, 13])
def test_buffers_need_not_be_aligned(engine: str, offset: int) -> None:
    run = engines.create(engine, relu((5, 7)), {"threads": 1})
    memory = np.random.default_rng(0).normal(size=2 * 35 + 64).astype(np.float32)
    source, target = memory[offset : offset + 35].reshape(5, 7), memory[offset + 40 : offset + 75].reshape(5, 7)
    expected = np.maximum(source, 0)
    run(unaligned(source), unaligned(target))
    np.testing.assert_array_equal(target, expected)


def test_networks_run_alternately_and_independently(engine: str) -> None:
    """Several partitions of one engine in one process, on two threads."""
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(64, 64)).astype(np.float32) for _ in range(3)]
    ports = [("x", (8, 64), "float32")], [("y", (8, 64), "float32")]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    runs = [engines.create(engine, blob([node], *ports, {"w": w}), {"threads": 2}) for w in weights]
    x, y = tensor(rng.normal(size=(8, 64))), tensor(np.zeros((8, 64)))
    for _ in range(3):
        for run, w in zip(runs, weights, strict=True):
            run(x, y)
            np.testing.assert_allclose(y.numpy(), x.numpy() @ w, rtol=1e-4, atol=1e-4)


def test_both_engines_share_a_process() -> None:
    runs = [engines.create(name, relu(), {"threads": 2}) for name in ENGINES]
    x, y = tensor(np.ones((2, 3))), tensor(np.zeros((2, 3)))
    for _ in range(3):
        for run in runs:
            np.from_dlpack(y)[:] = 0
            run(x, y)
            np.testing.assert_array_equal(y.numpy(), x.numpy())


def test_called_through_the_registered_function(engine: str) -> None:
    """The way in which a compiled model finds its engines."""
    engines.register()
    run = tvm.get_global_func("collage.runtime.create_engine")(engine, relu(), '{"threads": 1}')
    x, y = tensor([[-1, 2, -3], [4, -5, 6]]), tensor(np.zeros((2, 3)))
    run(x, y)
    np.testing.assert_array_equal(y.numpy(), [[0, 2, 0], [4, 0, 6]])


def test_wrong_number_of_tensors(engine: str) -> None:
    run = engines.create(engine, relu(), {"threads": 1})
    with pytest.raises(CompiledModelError, match="takes 2 tensors, 1 were given"):
        run(tensor(np.zeros((2, 3))))


@pytest.mark.parametrize("bad", [b"", b"not a model", relu()[:-20]])
def test_a_blob_that_is_no_model(engine: str, bad: bytes) -> None:
    with pytest.raises(CompiledModelError, match=engine):
        engines.create(engine, bad, {"threads": 1})


def test_an_operator_that_the_engine_does_not_know(engine: str) -> None:
    node = helper.make_node("Frobnicate", ["x"], ["y"], domain="example.org")
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("example.org", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    with pytest.raises(CompiledModelError, match="Frobnicate"):
        engines.create(engine, model.SerializeToString(), {"threads": 1})


def test_an_unknown_engine() -> None:
    with pytest.raises(CompiledModelError, match=r"'nonesuch'; known are .*onnxruntime, .*openvino"):
        engines.create("nonesuch", relu(), {"threads": 1})


def test_a_missing_library(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collage.runtime.engine.find_spec", lambda name: None)
    with pytest.raises(CompiledModelError, match=f"pip install collage-tvm\\[{engine}\\]"):
        engines.require([engine])


def test_openvino_refuses_int64_beyond_its_int32() -> None:
    model = blob([helper.make_node("Neg", ["x"], ["y"])], [("x", (2,), "int64")], [("y", (2,), "int64")])
    run = engines.create("openvino", model, {"threads": 1})
    y = tensor([0, 0], "int64")
    run(tensor([2**30, -(2**30)], "int64"), y)
    assert y.numpy().tolist() == [-(2**30), 2**30]
    with pytest.raises(CompiledModelError, match="int64 in int32"):
        run(tensor([2**40, 0], "int64"), y)


@pytest.mark.parametrize("name", ENGINES)
def test_imports_nothing_of_the_compiling_side(name: str) -> None:
    """A deployed process has neither onnx nor the compiler's packages at hand."""
    script = f"""
import sys
from collage.runtime import engines
engines.create({name!r}, {relu()!r}, {{"threads": 1}})
banned = [m for m in sys.modules if m == "onnx" or m.startswith(("collage.backends", "collage.graph", "searchers"))]
assert not banned, banned
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs two processors, on Linux"
)
@pytest.mark.parametrize(("fewer", "bound"), [(0, True), (1, False)])
@pytest.mark.parametrize("engine", ENGINES)
def test_threads_are_bound_where_there_are_as_many_as_processors(engine: str, fewer: int, bound: bool) -> None:
    """Unbound ones of OpenVINO took up to 1.19 times as long beside a busy process (docs/RESULTS.md), of ONNX Runtime
    up to 1.58 times without one (docs/TVM.md). Fewer threads would be bound to the same processors in every process.
    """
    weights = {"w": np.ones((512, 512), np.float32)}
    port = ("x", (512, 512), "float32")
    model = blob([helper.make_node("MatMul", ["x", "w"], ["y"])], [port], [("y", *port[1:])], weights)
    script = f"""
import os, sys, threading
import numpy as np
import tvm_ffi
from collage.runtime import engines

options = {{"threads": len(os.sched_getaffinity(0)) - {fewer}, "spin": True}}
run = engines.create("{engine}", sys.stdin.buffer.read(), options)
x = np.ones((512, 512), np.float32)
tensors = [tvm_ffi.from_dlpack(each, require_alignment=0) for each in (x, np.empty_like(x))]
seen, over = set(), threading.Event()

def look():  # threads are bound while they work, the caller's too
    while not over.is_set() and 1 not in seen:
        for thread in os.listdir("/proc/self/task"):
            try:
                seen.add(len(os.sched_getaffinity(int(thread))))
            except OSError:  # it has ended
                pass

looking = threading.Thread(target=look)
looking.start()
for _ in range(500):
    run(*tensors)
    if 1 in seen:
        break
over.set()
looking.join()
print(1 in seen)
"""
    done = subprocess.run([sys.executable, "-c", script], input=model, capture_output=True, timeout=120, check=False)
    assert done.stdout.decode().strip() == str(bound), done.stderr
