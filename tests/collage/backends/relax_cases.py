"""Small Relax modules and three ways to run them: TVM's own code, and the exporter with either engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from collage.backends.onnx.export import export_onnx
from collage.runtime import engines

Spec = tuple[tuple[int, ...], str]


def module_of(build: Callable[..., Any], *specs: Spec) -> Any:
    """A module whose `main` is one dataflow block that returns what `build` makes of its parameters."""
    params = [relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, (shape, dtype) in enumerate(specs)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            made = build(*params)
            result = builder.emit_output(relax.Tuple(list(made)) if isinstance(made, tuple | list) else made)
        builder.emit_func_output(result)
    return builder.get()


def random_inputs(specs: Sequence[Spec], low: float = -2.0, high: float = 2.0, seed: int = 0) -> list[np.ndarray]:
    """Reproducible inputs: floats and integers in [low, high], random booleans."""
    rng = np.random.default_rng(seed)

    def draw(shape: tuple[int, ...], dtype: str) -> np.ndarray:
        if dtype == "bool":
            return rng.integers(0, 2, shape).astype(bool)
        if dtype.startswith(("int", "uint")):
            smallest = max(int(low), 0) if dtype.startswith("uint") else int(low)
            return rng.integers(smallest, int(high) + 1, shape).astype(dtype)
        return rng.uniform(low, high, shape).astype(dtype)

    return [np.asarray(draw(shape, dtype)) for shape, dtype in specs]


def run_tvm(module: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of TVM's LLVM build."""
    vm = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
    result = vm["main"](*[tvm.runtime.tensor(value) for value in inputs])
    return [value.numpy() for value in ([result] if isinstance(result, tvm.runtime.Tensor) else result)]


def run_engine(engine: str, module: Any, inputs: Sequence[np.ndarray], threads: int = 1) -> list[np.ndarray]:
    """The outputs of an engine that runs what the exporter makes of `main`."""
    function = module["main"]
    run = engines.create(engine, export_onnx(function).SerializeToString(), {"threads": threads})
    outputs = empty_outputs(function)
    run(*[tvm.runtime.tensor(value) for value in inputs], *outputs)
    return [value.numpy() for value in outputs]


def empty_outputs(function: Any) -> list[Any]:
    """TVM tensors for a function's results, filled with a value that no test expects."""
    ty = function.ret_ty
    fields = list(ty.fields) if isinstance(ty, relax.TupleType) else [ty]
    return [
        tvm.runtime.tensor(np.full([int(d) for d in field.shape.values], 77).astype(str(field.dtype)))
        for field in fields
    ]
