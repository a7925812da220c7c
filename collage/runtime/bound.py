"""BoundCall: a call of a model on buffers that stay the same, like a request of OpenVINO or an IO binding of ONNX
Runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from collage.errors import ModelInputError
from collage.runtime.arguments import Argument, Staging


class BoundCall:
    """A model together with its inputs and outputs; `CompiledModel.bind` makes it.

    Calling it reads the inputs, writes the outputs, and returns them: one array, or a tuple, the same ones every time.

    Attributes
    ----------
    inputs, outputs
        What was bound, in order: the caller's own objects, or arrays that were allocated.
    """

    def __init__(self, inputs: Sequence[Any], outputs: Sequence[Any], run: Callable[[], None]) -> None:
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self._run = run
        self._result = self.outputs[0] if len(self.outputs) == 1 else self.outputs

    def __call__(self) -> Any:
        """Run once.

        Raises
        ------
        CompiledModelError
            The process was forked after the model was loaded.
        """
        self._run()
        return self._result


class Buffers:
    """The inputs or the outputs of a bound call.

    Parameters
    ----------
    arguments
        What they have to be.
    values
        What the caller gave.

    Attributes
    ----------
    arguments
        As given.
    arrays
        The values as arrays, on the same memory.
    tensors
        The same memory as tensors; None where kernels cannot use it.

    Raises
    ------
    ModelInputError
        A value does not fit.
    """

    def __init__(self, arguments: Sequence[Argument], values: Sequence[Any]) -> None:
        if len(values) != len(arguments):
            role = arguments[0].role if arguments else "input"
            expected = ", ".join(str(argument.spec) for argument in arguments)
            raise ModelInputError(f"the model has {len(arguments)} {role}s ({expected}), {len(values)} were given")
        self.arguments = tuple(arguments)
        self.arrays = [argument.array(value) for argument, value in zip(arguments, values, strict=True)]
        self.tensors = [argument.in_place(array) for argument, array in zip(arguments, self.arrays, strict=True)]

    def staged(self) -> tuple[list[Any], list[tuple[Staging, np.ndarray]]]:
        """A tensor for each, and what has to be copied before a call: to memory of the model's own, from the value."""
        stages = {i: Staging(self.arguments[i].spec) for i, tensor in enumerate(self.tensors) if tensor is None}
        tensors = [stages[i].tensor if tensor is None else tensor for i, tensor in enumerate(self.tensors)]
        return tensors, [(stage, self.arrays[i]) for i, stage in stages.items()]


def check_outputs(inputs: Buffers, outputs: Buffers) -> None:
    """Raise ModelInputError where an output cannot be written, or overlaps another array."""
    for argument, array in zip(outputs.arguments, outputs.arrays, strict=True):
        if not array.flags.carray:
            raise ModelInputError(f"output {argument.spec.name} has to be contiguous and writeable")
        if any(np.may_share_memory(array, other) for other in inputs.arrays):
            raise ModelInputError(f"output {argument.spec.name} overlaps an input")
    for one, other in combinations(outputs.arrays, 2):
        if np.may_share_memory(one, other):
            raise ModelInputError("two outputs overlap")
