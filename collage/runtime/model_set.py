"""ModelSet: one network compiled for several shapes; the shapes of a call choose."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np

from collage.errors import CompiledModelError, ModelInputError
from collage.runtime import forks
from collage.runtime.bound import BoundCall
from collage.runtime.dynamic import DynamicModel
from collage.runtime.model import CompiledModel

_Shapes = tuple[tuple[int, ...], ...]


class ModelSet:
    """A network that runs on several shapes. It is called as a `CompiledModel` is.

    A call of shapes that were tuned is one of the model that was compiled for them. Other shapes run on an engine that
    takes any, with a warning in the log of `collage` the first time; where the file has none, and in strict use, they
    are refused. One call runs at a time, whatever its shapes.

    Parameters
    ----------
    models
        One for each list of shapes.
    dynamic
        What runs other shapes; None refuses them.
    strict
        Refuse them anyway.

    Attributes
    ----------
    models
        As given.
    device
        The kind of device that it runs on, "cpu" or "cuda".
    inputs, outputs
        What the first of the models takes and gives, in order.
    metadata
        What the compiling side wrote, under "models" for each.
    """

    def __init__(self, models: Sequence[CompiledModel], dynamic: DynamicModel | None, strict: bool = False) -> None:
        self.models = tuple(models)
        self.device, self.inputs, self.outputs = models[0].device, models[0].inputs, models[0].outputs
        self.metadata: dict[str, Any] = {"models": [model.metadata for model in models]}
        self._by_shapes = {tuple([spec.shape for spec in model.inputs]): model for model in models}
        self._dynamic = dynamic
        self._strict = strict
        self._said = False
        self._lock = Lock()
        self._forks = forks.count
        for model in models:
            model.lock = self._lock

    def __call__(self, *inputs: Any) -> Any:
        """Run the network once.

        Raises
        ------
        ModelInputError
            Wrong number of inputs, shapes that the network cannot have or that are refused, or wrong dtype.
        CompiledModelError
            The process was forked after the model was loaded, or the engine for other shapes fails.
        """
        model = self._by_shapes.get(tuple([_shape(value) for value in inputs]))
        return self._run_dynamic(inputs) if model is None else model(*inputs)

    def bind(self, inputs: Sequence[Any] | None = None, outputs: Sequence[Any] | None = None) -> BoundCall:
        """A call on buffers that stay the same, as of `CompiledModel.bind`, for shapes that were tuned.

        Without inputs, they are those of the first model; `models` has the others.

        Raises
        ------
        ModelInputError, CompiledModelError
            As of `CompiledModel.bind`; and the shapes were not tuned.
        """
        if inputs is None:
            return self.models[0].bind(None, outputs)
        shapes = tuple([_shape(value) for value in inputs])
        model = self._by_shapes.get(shapes)
        if model is None:
            self._check_count(inputs)
            raise self._refused(shapes, "buffers are bound for shapes that were tuned")
        return model.bind(inputs, outputs)

    def _run_dynamic(self, inputs: Sequence[Any]) -> Any:
        self._check_count(inputs)
        shapes = tuple([_shape(value) for value in inputs])
        if self._dynamic is None:
            raise self._refused(shapes, "the file has no engine for other shapes")
        if reason := self._dynamic.refusal(shapes):
            raise self._refused(shapes, reason)
        if self._strict:
            raise self._refused(shapes, "it was loaded with strict=True")
        if self._forks != forks.count:
            raise CompiledModelError("the model was loaded before this process was forked: load it after the fork")
        with self._lock:
            if not self._said:
                self._said = True
                logging.getLogger(__name__).warning(
                    "%s; it runs on %s, untuned. Further ones are not reported. Tuned are %s",
                    *(self._text(shapes), self._dynamic.engine, self._tuned()),
                )
            return self._dynamic(inputs, shapes)

    def _check_count(self, inputs: Sequence[Any]) -> None:
        if len(inputs) != len(self.inputs):
            names = ", ".join(spec.name for spec in self.inputs)
            raise ModelInputError(f"the model takes {len(self.inputs)} inputs ({names}), {len(inputs)} were given")

    def _refused(self, shapes: _Shapes, reason: str) -> ModelInputError:
        return ModelInputError(f"{self._text(shapes)}: {reason}. Tuned are {self._tuned()}")

    def _text(self, shapes: _Shapes) -> str:
        return f"no plan was tuned for {self._named(shapes)}"

    def _tuned(self) -> str:
        return "; ".join(map(self._named, self._by_shapes))

    def _named(self, shapes: _Shapes) -> str:
        pairs = zip(self.inputs, shapes, strict=True)
        return " ".join(f"{spec.name}={','.join(map(str, shape))}" for spec, shape in pairs)


def _shape(value: Any) -> tuple[int, ...]:
    """The shape of an array or of what becomes one; () of what does not."""
    try:
        return tuple(value.shape if hasattr(value, "shape") else np.shape(value))
    except ValueError:
        return ()
