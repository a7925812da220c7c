"""Calls of compiled models: which memory they read, which they write, and who may call at the same time."""

from __future__ import annotations

import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm_ffi

import collage.runtime
from collage.errors import CompiledModelError, ModelInputError
from tests.collage.runtime.conftest import NAMES, SHAPE, Models, assert_right, compiled, expected, values

rng = np.random.default_rng(0)


def at_offset(array: np.ndarray, offset: int) -> np.ndarray:
    """A copy whose address is so many bytes after a multiple of 64."""
    memory = np.empty(array.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def read_only(array: np.ndarray) -> np.ndarray:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


LAYOUTS: dict[str, Callable[[np.ndarray], Any]] = {
    "aligned": lambda array: at_offset(array, 0),
    "aligned to elements only": lambda array: at_offset(array, 4),
    "not aligned at all": lambda array: at_offset(array, 3),
    "read-only": read_only,
    "columns first": np.asfortranarray,
    "strided": lambda array: np.repeat(array, 2, axis=0)[::2],
    "a tensor of tvm-ffi": lambda array: tvm_ffi.from_dlpack(at_offset(array, 4), require_alignment=0),
    "a list": lambda array: array.tolist(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NAMES)
def test_inputs_may_lie_anywhere(models: Models, name: str, layout: str) -> None:
    model = collage.runtime.load(models(name))
    for _ in range(3):  # memory for copies is used again
        inputs = values()
        assert_right(model(*map(LAYOUTS[layout], inputs)), inputs)


@pytest.mark.parametrize("name", NAMES)
def test_arrays_that_are_given_again_are_read_again(models: Models, name: str) -> None:
    """What is known of an array from the last call is its memory, and not what is in it."""
    model = collage.runtime.load(models(name))
    arrays = [at_offset(array, 0) for array in values()]
    assert_right(model(*arrays), arrays)
    assert_right(model(*arrays[::-1]), arrays[::-1])
    assert_right(model(arrays[0], arrays[0]), [arrays[0], arrays[0]])
    for _ in range(3):
        for array, fresh in zip(arrays, values(), strict=True):
            array[...] = fresh
        assert_right(model(*arrays), arrays)
    arrays[1].shape = (*arrays[1].shape, 1)
    with pytest.raises(ModelInputError, match="has shape"):
        model(*arrays)


@pytest.mark.parametrize("name", ["openvino", "onnxruntime", "engines"])
def test_of_the_arrays_of_calls_the_last_ones_are_kept_if_they_are_not_large(
    models: Models, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = collage.runtime.load(models(name))

    def called() -> list[Any]:
        arrays = values()
        model(*arrays)
        return [weakref.ref(array) for array in arrays]

    first = called()
    assert all(reference() is not None for reference in first)
    model(*map(read_only, values()))  # copied: nothing of it is kept
    assert all(reference() is None for reference in first)
    monkeypatch.setattr("collage.runtime.arguments._KEPT", 0)
    assert all(reference() is None for reference in called())


@pytest.mark.parametrize("name", NAMES)
def test_a_result_that_is_kept_is_never_overwritten(models: Models, name: str) -> None:
    """Whether the array itself is kept, a view of it, or another library's tensor on its memory."""
    model = collage.runtime.load(models(name))
    kept = []
    for step in range(12):
        inputs = values()
        results = model(*inputs)
        if step % 3 == 1:
            results = tuple(result[1:] for result in results)
        if step % 3 == 2:
            results = tuple(np.from_dlpack(tvm_ffi.from_dlpack(result, require_alignment=0)) for result in results)
        kept.append((inputs, results, step % 3 == 1))
    for inputs, results, cut in kept:
        for result, right in zip(results, expected(*inputs), strict=True):
            np.testing.assert_allclose(result, right[1:] if cut else right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_the_memory_of_results_that_are_gone_is_used_again(models: Models, name: str) -> None:
    model = collage.runtime.load(models(name))
    inputs = values()
    addresses = {result.ctypes.data for _ in range(10) for result in model(*inputs)}
    assert len(addresses) <= 2 * len(model.outputs)


@pytest.mark.parametrize("offset", [0, 4])
def test_an_output_that_is_an_input_is_a_copy(models: Models, offset: int) -> None:
    model = collage.runtime.load(models("given back"))
    first, second = values()
    array = at_offset(first, offset)
    view, positive = model(array)
    model(at_offset(second, offset))
    array[...] = 7
    np.testing.assert_array_equal(view, first.reshape(SHAPE[::-1]))
    np.testing.assert_array_equal(positive, np.maximum(first, 0))


@pytest.mark.parametrize("name", ["openvino", "onnxruntime", "engines"])
def test_what_engines_alone_read_is_not_copied(models: Models, name: str) -> None:
    model = collage.runtime.load(models(name))
    array = at_offset(values()[0], 4)
    assert [argument.tensor(array).data_ptr() for argument in model._arguments] == [array.ctypes.data] * 2


@pytest.mark.parametrize("name", ["openvino", "onnxruntime", "other order"])
def test_small_results_of_an_engine_alone_need_no_virtual_machine(models: Models, name: str) -> None:
    model = collage.runtime.load(models(name))
    inputs = values()
    right = model.run([argument.tensor(array) for argument, array in zip(model._arguments, inputs, strict=True)])
    model._main = None
    for result, by_machine in zip(model(*inputs), right, strict=True):
        np.testing.assert_array_equal(result, by_machine.numpy())
        assert result.flags.owndata


@pytest.mark.parametrize("name", ["openvino", "onnxruntime"])
def test_an_engine_in_python_is_called_without_tvm_between(models: Models, name: str) -> None:
    model = collage.runtime.load(models(name))
    assert model._direct is not None and not isinstance(model._direct.function, tvm_ffi.Function)
    again = collage.runtime.CompiledModel(model.module, model.metadata)  # the engine is there: none is made
    assert again._direct is not None and isinstance(again._direct.function, tvm_ffi.Function)
    inputs = values()
    assert_right(model(*inputs), inputs)
    assert_right(again(*inputs), inputs)


def test_large_results_come_from_the_pool(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collage.runtime.model._SMALL", 100)
    model = collage.runtime.load(models("openvino"))
    assert model._small is None
    inputs = values()
    assert_right(model(*inputs), inputs)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layout", ["aligned", "aligned to elements only", "read-only", "columns first", "strided"])
def test_a_bound_call_reads_and_writes_the_callers_arrays(models: Models, name: str, layout: str) -> None:
    model = collage.runtime.load(models(name))
    inputs = [LAYOUTS[layout](array) for array in values()]
    outputs = [at_offset(np.zeros(SHAPE, np.float32), 4) for _ in model.outputs]
    call = model.bind(inputs, outputs)
    for _ in range(3):
        for array, value in zip(inputs, values(), strict=True):
            array.flags.writeable = True
            array[...] = value
        results = call()
        assert all(result is output for result, output in zip(results, outputs, strict=True))
        assert_right(outputs, inputs)


@pytest.mark.parametrize("name", NAMES)
def test_a_bound_call_brings_the_arrays_that_are_not_given(models: Models, name: str) -> None:
    model = collage.runtime.load(models(name))
    call, other = model.bind(), model.bind()
    for _ in range(2):
        inputs = values()
        for bound in (call, other):
            for array, value in zip(bound.inputs, inputs, strict=True):
                array[...] = value
        model(*values())
        assert_right(call(), inputs)
        assert_right(other(), inputs)
    assert all(array.ctypes.data % 64 == 0 for array in (*call.inputs, *call.outputs))


def test_a_bound_call_has_views_of_inputs_among_its_outputs(models: Models) -> None:
    model = collage.runtime.load(models("given back"))
    call = model.bind()
    call.inputs[0][...] = -1
    view, positive = call()
    assert view is call.outputs[0] and view.shape == SHAPE[::-1]
    assert (view == -1).all() and (positive == 0).all()


def test_a_bound_call_of_a_partition_with_arguments_in_another_order(models: Models) -> None:
    model = collage.runtime.load(models("other order"))
    a, b = values()
    positive, difference = model.bind([a, b])()
    np.testing.assert_allclose(difference, b - a, rtol=1e-6)
    np.testing.assert_array_equal(positive, np.maximum(difference, 0))


def test_what_cannot_be_bound_is_refused_by_name(models: Models) -> None:
    model = collage.runtime.load(models("openvino"))
    a, b = values()
    outputs = [np.zeros(SHAPE, np.float32) for _ in range(3)]
    with pytest.raises(ModelInputError, match="2 inputs"):
        model.bind([a])
    with pytest.raises(ModelInputError, match="3 outputs"):
        model.bind([a, b], outputs[:2])
    with pytest.raises(ModelInputError, match=r"output .* has dtype float64"):
        model.bind([a, b], [*outputs[:2], np.zeros(SHAPE)])
    with pytest.raises(ModelInputError, match="contiguous and writeable"):
        model.bind([a, b], [*outputs[:2], read_only(outputs[2])])
    with pytest.raises(ModelInputError, match="overlaps an input"):
        model.bind([a, b], [a, *outputs[1:]])
    with pytest.raises(ModelInputError, match="outputs overlap"):
        model.bind([a, b], [outputs[0], outputs[1], outputs[0]])


@pytest.mark.parametrize("name", NAMES)
def test_threads_share_a_model(models: Models, name: str) -> None:
    model = collage.runtime.load(models(name))
    wrong: list[BaseException] = []

    def work() -> None:
        try:
            call = model.bind()
            for step in range(30):
                inputs = values()
                if step % 2:
                    for array, value in zip(call.inputs, inputs, strict=True):
                        array[...] = value
                assert_right(call() if step % 2 else model(*(at_offset(i, 4) for i in inputs)), inputs)
        except BaseException as error:
            wrong.append(error)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_models_in_one_process_are_independent(models: Models) -> None:
    """Their partitions have the same symbols, and one of them goes first."""
    loaded = {name: collage.runtime.load(models(name)) for name in NAMES}
    other = collage.runtime.load(models("given back"))
    again = collage.runtime.load(models("openvino"))
    for _ in range(2):
        inputs = values()
        for model in (*loaded.values(), again):
            assert_right(model(*inputs), inputs)
        np.testing.assert_array_equal(other(inputs[0])[1], np.maximum(inputs[0], 0))
        loaded.pop("openvino", None)
        loaded.pop("tvm", None)


def test_a_model_whose_engine_fails_is_refused_in_one_line(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> Any:
        raise CompiledModelError("openvino: compiling the partition: not enough memory")

    path = models("mixed")
    monkeypatch.setattr(collage.runtime.engines, "create", failing)
    with pytest.raises(CompiledModelError) as caught:
        collage.runtime.load(path)
    assert str(caught.value) == ("the model cannot be loaded: openvino: compiling the partition: not enough memory")


def test_models_keep_their_numbers_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when they are called in turn, and from a thread that has a pool of its own."""
    one, two = (compiled("tvm", threads).load() for threads in (1, 2))
    seen: list[int] = []
    working = tvm_ffi.get_global_func("runtime.NumThreads")

    def work() -> None:
        for model in (one, two, one, two):
            model(*values())
            seen.append(int(working()))

    work()
    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    assert seen == [1, 2, 1, 2] * 2


_COUNT = """
import os, sys
import numpy as np
import tvm_ffi, openvino, onnxruntime
import collage.runtime
threads = lambda: len(os.listdir("/proc/self/task"))
before = threads()
model = collage.runtime.load(sys.argv[1])
for _ in range(3):
    model(*(np.ones(spec.shape, spec.dtype) for spec in model.inputs))
print(threads() - before, "tvm" in sys.modules)
"""


def test_a_model_of_an_engine_alone_starts_no_other_pool(models: Models) -> None:
    """Two threads: the caller's, and one of ONNX Runtime's. Nor is TVM's compiler loaded."""
    command = [sys.executable, "-c", _COUNT, str(models("onnxruntime"))]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert printed == ["1", "False"]


@pytest.mark.parametrize(("name", "spins"), [("onnxruntime", [True]), ("engines", [False])])
def test_onnx_runtime_spins_when_it_is_alone(name: str, spins: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    from collage.runtime.engines import onnxruntime

    seen: list[bool] = []
    make = onnxruntime.session_options

    def noted(threads: int, spin: bool) -> Any:
        seen.append(spin)
        return make(threads, spin)

    monkeypatch.setattr(onnxruntime, "session_options", noted)
    compiled(name).load()
    assert seen == spins
