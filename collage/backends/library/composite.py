"""From the `Codegen` function of a library partition to a blob: its one `Composite`, and where its operands come from.

A library backend's partition (`collage.compile.rewrite`) is a function that calls one nested `Composite` function,
which holds the operators of one labelled pattern. The engine needs its operators, and for every operand whether that is
an argument of the function or a weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from collage.annotations.precision import INT8_RANGES, Range
from collage.errors import CodegenError
from collage.runtime import blob


@dataclass(frozen=True)
class Composite:
    """The operators of a library partition.

    Attributes
    ----------
    label
        The pattern's, such as "cublas.matmul_bias".
    calls
        The calls inside, in order.
    result
        The variable that the partition returns.
    arguments
        Parameter inside -> position among the arguments of the partition's function.
    bound
        Variable inside -> the call that it is bound to.
    count
        Number of arguments of the partition's function; its output is the one after them.
    ranges
        What each of these was seen to range over; of backends of eight bits.
    """

    label: str
    calls: tuple[Any, ...]
    result: Any
    arguments: Mapping[Any, int]
    bound: Mapping[Any, Any]
    count: int
    ranges: tuple[Range, ...] = ()

    @classmethod
    def of(cls, function: Any) -> Composite:
        """Read a `Codegen` function.

        Raises
        ------
        CodegenError
            It does not hold exactly one `Composite` function.
        """
        bindings = [binding for block in function.body.blocks for binding in block.bindings]
        composites = {b.var: b.value for b in bindings if isinstance(b.value, relax.Function)}
        calls = [b for b in bindings if isinstance(b.value, relax.Call)]
        if len(composites) != 1 or len(calls) != 1 or calls[0].value.op not in composites:
            raise CodegenError("a library partition holds one labelled pattern and nothing else")
        (inner,) = composites.values()
        inside = [binding for block in inner.body.blocks for binding in block.bindings]
        positions = {param: i for i, param in enumerate(function.params)}
        ends = [float(end) for end in function.attrs.get(INT8_RANGES, ())]
        arguments = {p: positions[a] for p, a in zip(inner.params, calls[0].value.args, strict=True)}
        return cls(
            label=str(inner.attrs["Composite"]),
            calls=tuple(binding.value for binding in inside),
            result=inner.body.body,
            arguments=arguments,
            bound={binding.var: binding.value for binding in inside},
            count=len(function.params),
            ranges=tuple(zip(ends[::2], ends[1::2], strict=True)),
        )

    def value(self, expr: Any) -> Any:
        """The call that a variable inside is bound to; any other expression as it is."""
        return self.bound.get(expr, expr) if isinstance(expr, relax.Var) else expr


class Operands:
    """The operands of a partition's computation, as they are collected for its blob.

    Attributes
    ----------
    tensors
        Name -> weight, of those referred to so far.
    """

    def __init__(self, composite: Composite) -> None:
        self.tensors: dict[str, np.ndarray] = {}
        self._composite = composite
        self._names: dict[Any, str] = {}

    def reference(self, expr: Any) -> dict[str, Any]:
        """What the blob's header says of an operand: {"arg": i} or {"tensor": name}.

        Raises
        ------
        CodegenError
            It is neither an argument nor a weight.
        """
        if isinstance(expr, relax.Var) and expr in self._composite.arguments:
            return {"arg": self._composite.arguments[expr]}
        if isinstance(expr, tvm.ir.GenericConst):
            if expr not in self._names:
                self._names[expr] = f"w{len(self._names)}"
                self.tensors[self._names[expr]] = expr.value.numpy()
            return {"tensor": self._names[expr]}
        raise CodegenError(f"{self._composite.label}: an operand is neither an argument nor a weight")

    def output(self) -> dict[str, Any]:
        """The partition's result: the argument after the inputs."""
        return {"arg": self._composite.count}

    def replace(self, reference: Mapping[str, Any], array: np.ndarray) -> None:
        """Store a weight in another layout than it came in."""
        self.tensors[reference["tensor"]] = array

    def blob(self, header: Mapping[str, Any]) -> bytes:
        """The blob; "arguments" of its header is the number of tensors that the function is called with."""
        return blob.pack({**header, "arguments": self._composite.count + 1}, self.tensors)


def static_shape(value: Any) -> tuple[int, ...] | None:
    """The shape of a tensor, with one entry per axis; None when it is not known or no tensor."""
    ty = value.ty
    if not isinstance(ty, relax.TensorType) or ty.shape is None or not isinstance(ty.shape, relax.ShapeExpr):
        return None
    extents = list(ty.shape.values)
    if not all(isinstance(extent, (int, tvm.tirx.IntImm)) for extent in extents):
        return None
    return tuple(int(extent) for extent in extents)


def dtype_of(value: Any) -> str:
    """The dtype of a tensor, such as "float16"."""
    return str(value.ty.dtype)
