"""CompiledModel: a compiled network, loaded from the one file that holds all of it, ready to be called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
import tvm_ffi

from collage.errors import CompiledModelError, ModelInputError, last_line
from collage.runtime import engines, forks
from collage.runtime.arguments import Argument, Staging, empty, values_of
from collage.runtime.bound import BoundCall, Buffers, check_outputs
from collage.runtime.tensor_spec import TensorSpec
from collage.runtime.threads import ensure_threads, prepare_threads

#: TVM's device type of a CPU, and its allocator that keeps memory for the next call.
_CPU, _POOLED = 1, 2
#: Bytes of results up to which a copy costs less than the virtual machine, whose pool keeps its pages.
_SMALL = 1 << 16


class CompiledModel:
    """A network that runs. Call it with one array per input, in the order of the graph's inputs.

    NumPy arrays and anything that speaks DLPack are taken, and used without a copy where the kernels that read them
    can: contiguous and writeable, and aligned to 64 bytes unless engines alone read them. An array of up to 16 MiB is
    kept until the next call. One output comes back as an array, several as a tuple. They are NumPy arrays that own
    their memory: it is used for other results only after the last reference to it is gone. `bind` makes calls on
    buffers that stay the same.

    Threads may share a model: one call runs at a time, the others wait. Several models in one process are
    independent. A process that was forked after a model was loaded cannot call it, and is told so: the threads of the
    engines stayed behind.

    A model for an accelerator copies arrays there and results back. When one of the inputs is a tensor on that device
    already (of TVM, PyTorch, CuPy, ...), such inputs are used in place, and the results are TVM tensors that stay
    there: `torch.from_dlpack` takes them. They are written on TVM's current stream, and not waited for.

    Attributes
    ----------
    device
        The kind of device that takes its inputs and gives its results, "cpu" or "cuda".
    devices
        All that it runs on, `device` first.
    inputs, outputs
        What it takes and gives, in order.
    metadata
        What the compiling side wrote into the file: versions, threads, and the plan.
    module
        TVM's runtime module, with the functions of all partitions.
    lock
        Held during a call. Models that take turns share one.
    """

    def __init__(self, module: Any, metadata: dict[str, Any]) -> None:
        self.metadata = metadata
        self.device = str(metadata.get("device", "cpu"))
        self.inputs = tuple(TensorSpec(name, tuple(shape), dtype) for name, shape, dtype in metadata["inputs"])
        self.outputs = tuple(TensorSpec(name, tuple(shape), dtype) for name, shape, dtype in metadata["outputs"])
        facts = metadata.get("runtime", {})  # files of before have none: then nothing is known
        anywhere = facts.get("any_address", ())
        self._arguments = [Argument(spec, i in anywhere) for i, spec in enumerate(self.inputs)]
        self._pool_threads = int(metadata["threads"]) if "tvm" in facts.get("pools", ["tvm"]) else None
        prepare_threads(metadata["threads"])
        engines.register()
        self.module = module  # TVM unloads a library with its last reference
        self.devices = tuple(metadata.get("devices", [self.device]))
        with engines.listening() as heard:
            try:
                self._machine = self._new_machine()
            except RuntimeError as error:  # TVM makes one of whatever an engine raises
                raise CompiledModelError(f"the model cannot be loaded: {last_line(error)}") from error
            self._main = self._machine["main"]
            self._direct = _direct(module, facts.get("direct"), heard)
        self._small = None if self._direct is None else _small(self._direct, self._arguments, self.outputs)
        self.lock = Lock()
        self._forks = forks.count

    def _new_machine(self) -> Any:
        machine = self.module["vm_load_executable"]()
        if self.devices == ("cpu",):
            machine["vm_initialization"](_CPU, 0, _POOLED)
        else:
            from collage.runtime.devices import device_of

            found = [device_of(device) for device in self.devices]
            self._device = found[0]
            pooled = [n for d in found for n in (int(d.dlpack_device_type()), int(d.index), _POOLED)]
            machine["vm_initialization"](*pooled, _CPU, 0, _POOLED)
        return machine

    def __call__(self, *inputs: Any) -> Any:
        """Run the network once.

        Raises
        ------
        ModelInputError
            Wrong number of inputs, wrong shape, or wrong dtype.
        CompiledModelError
            The process was forked after the model was loaded.
        """
        if len(inputs) != len(self._arguments):
            expected = ", ".join(map(str, self.inputs))
            raise ModelInputError(f"the model takes {len(self.inputs)} inputs ({expected}), {len(inputs)} were given")
        if self.device != "cpu":
            return self._call_on_device(inputs)
        if self._forks != forks.count or self._pool_threads is not None:
            self._prepare()
        with self.lock:
            if self._small is not None:
                return self._small.call(inputs)
            tensors = [argument.tensor(value) for argument, value in zip(self._arguments, inputs, strict=True)]
            result = self._main(*tensors)
            if isinstance(result, tvm_ffi.Tensor):
                return _as_array(result, tensors)
            return tuple([_as_array(tensor, tensors) for tensor in result])

    def bind(self, inputs: Sequence[Any] | None = None, outputs: Sequence[Any] | None = None) -> BoundCall:
        """A call on buffers that stay the same: it checks nothing and allocates nothing.

        Parameters
        ----------
        inputs
            One array per input, read where it is at every call; None allocates them, to be filled by the caller.
        outputs
            One array per output, contiguous and writeable, written at every call; None allocates them.

        Raises
        ------
        ModelInputError
            A wrong number of arrays, a wrong shape or dtype, an output that is not contiguous or not writeable, or
            outputs that overlap each other or inputs.
        CompiledModelError
            The model runs on an accelerator: there, tensors on the device are used in place by an ordinary call. Or
            the shape of an output depends on the values of a call.

        Notes
        -----
        Where kernels cannot use an array in place, its values are copied at every call: an input that is not aligned to
        64 bytes and is read by a kernel of TVM's, and the outputs of a model of several partitions. Arrays that were
        allocated here are aligned.
        """
        if self.device != "cpu":
            raise CompiledModelError(
                "buffers are bound for models on the CPU: give an ordinary call tensors on the device"
            )
        for spec in self.outputs:
            if spec.is_open:
                raise CompiledModelError(
                    f"the shape of output {spec} depends on the values of a call: it cannot be bound"
                )
        direct = self._direct
        anywhere = direct is None or direct.any_address
        targets = [Argument(spec, anywhere, "output") for spec in self.outputs]
        taken = Buffers(self._arguments, [empty(spec) for spec in self.inputs] if inputs is None else inputs)
        given = Buffers(targets, [empty(spec) for spec in self.outputs] if outputs is None else outputs)
        check_outputs(taken, given)
        tensors, copied = taken.staged()
        if direct is not None and None not in given.tensors:
            run = partial(self._run_direct, direct.function, direct.ordered(tensors, given.tensors), copied)
        else:
            run = partial(self._run_and_copy, tensors, copied, given.arrays)
        return BoundCall(inputs or taken.arrays, outputs or given.arrays, run)

    def run(self, tensors: Sequence[Any]) -> list[Any]:
        """Run on TVM tensors that are known to fit; the outputs are TVM tensors. No checks of them, no copies."""
        self._prepare()
        with self.lock:
            result = self._main(*tensors)
        return [result] if isinstance(result, tvm_ffi.Tensor) else list(result)

    def _run_direct(self, function: Any, tensors: Sequence[Any], copied: Sequence[tuple[Staging, np.ndarray]]) -> None:
        self._prepare()
        with self.lock:
            for stage, array in copied:
                stage.filled(array)
            function(*tensors)

    def _run_and_copy(
        self, tensors: Sequence[Any], copied: Sequence[tuple[Staging, np.ndarray]], outputs: Sequence[np.ndarray]
    ) -> None:
        self._prepare()
        with self.lock:
            for stage, array in copied:
                stage.filled(array)
            result = self._main(*tensors)
            results = [result] if isinstance(result, tvm_ffi.Tensor) else result
            for output, tensor in zip(outputs, results, strict=True):
                np.copyto(output, values_of(tensor))

    def _prepare(self) -> None:
        """What comes before every call."""
        if self._forks != forks.count:
            raise CompiledModelError(
                "the model was loaded before this process was forked, and its threads are not here: load it after the "
                'fork, or start processes by "spawn"'
            )
        if self._pool_threads is not None:
            ensure_threads(self._pool_threads)

    def _call_on_device(self, inputs: Sequence[Any]) -> Any:
        from collage.runtime.devices import tensor_on, upload

        there = [tensor_on(value, self._device) for value in inputs]
        tensors = []
        for tensor, argument, value in zip(there, self._arguments, inputs, strict=True):
            if tensor is None:
                tensor = upload(argument.array(value), self._device)
            else:
                argument.check(tuple(int(d) for d in tensor.shape), str(tensor.dtype))
            tensors.append(tensor)
        results = self.run(tensors)
        if all(tensor is None for tensor in there):
            results = [result.numpy() for result in results]
        return results[0] if len(results) == 1 else tuple(results)


@dataclass(frozen=True)
class _Direct:
    """The one partition of a model that is nothing else: its engine's function, and which inputs and outputs of the
    model its arguments are.
    """

    function: Any
    inputs: Sequence[int]
    outputs: Sequence[int]
    any_address: bool

    def ordered(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
        """The arguments of the function."""
        return [*(inputs[i] for i in self.inputs), *(outputs[i] for i in self.outputs)]


class _SmallCall:
    """A call of the one partition of a model on memory that stays the same, from which the results are copied: engines
    bind an address once, and the virtual machine is not asked.
    """

    def __init__(
        self, direct: _Direct, arguments: Sequence[Argument], results: Sequence[np.ndarray], targets: Sequence[Any]
    ) -> None:
        self._function = direct.function
        self._results = results
        self._inputs = [(arguments[i].tensor, i) for i in direct.inputs]
        self._unread = [(argument.array, i) for i, argument in enumerate(arguments) if i not in direct.inputs]
        self._targets = [targets[i] for i in direct.outputs]

    def call(self, values: Sequence[Any]) -> Any:
        """The results for these inputs of the model."""
        for check, i in self._unread:
            check(values[i])
        self._function(*[tensor(values[i]) for tensor, i in self._inputs], *self._targets)
        results = self._results
        return results[0].copy() if len(results) == 1 else tuple([result.copy() for result in results])


def _small(direct: _Direct, arguments: Sequence[Argument], outputs: Sequence[TensorSpec]) -> _SmallCall | None:
    """None where the results are large, or of a type that DLPack does not know."""
    targets = [Argument(spec, any_address=False, role="output") for spec in outputs]
    if sum(target.size for target in targets) > _SMALL:
        return None
    results = [empty(spec) for spec in outputs]
    tensors = [target.in_place(array) for target, array in zip(targets, results, strict=True)]
    return None if None in tensors else _SmallCall(direct, arguments, results, tensors)


def _direct(module: Any, facts: Mapping[str, Any] | None, heard: Sequence[Any]) -> _Direct | None:
    """Where an engine in Python has just been made, it is called without TVM between."""
    if facts is None:
        return None
    function = module.get_function(facts["symbol"], query_imports=True)
    if len(heard) == 1:
        function = heard[0]
    return _Direct(function, facts["inputs"], facts["outputs"], facts["any_address"])


def _as_array(result: Any, arguments: Sequence[Any]) -> np.ndarray:
    """An output as an array that owns its memory: one that is an input, or a view of one, is copied."""
    array = values_of(result)
    address = result.data_ptr()
    return array.copy() if any(argument.data_ptr() == address for argument in arguments) else array
