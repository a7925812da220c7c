"""Native partitions for the tests of the TVM backend: made, compiled, run, and compared with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from collage.backends.tvm.lower import cpu_target, lower

Spec = tuple[tuple[int, ...], str]


def partition(specs: Sequence[Spec], body: Callable[..., Any]) -> Any:
    """A module whose `main` calls one native partition, as `collage.compile.rewrite` makes it."""
    builder = relax.BlockBuilder()
    inner = [relax.Var(f"p{i}", relax.TensorType(shape, dtype)) for i, (shape, dtype) in enumerate(specs)]
    with builder.function("partition", inner, private=True):
        with builder.dataflow():
            out = builder.emit_output(body(builder, *inner))
        builder.emit_func_output(out)
    module = builder.get()
    symbol = module.get_global_var("partition")
    module.update_func(symbol, module[symbol].with_attrs({"Primitive": 1, "collage.backend": "tvm"}))
    builder = relax.BlockBuilder(module)
    outer = [relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, (shape, dtype) in enumerate(specs)]
    with builder.function("main", outer):
        with builder.dataflow():
            out = builder.emit_output(relax.Call(symbol, outer))
        builder.emit_func_output(out)
    return builder.get()


def run(module: Any, arrays: Sequence[np.ndarray], threads: int = 2) -> list[np.ndarray]:
    target = cpu_target(threads)
    executable = tvm.compile(lower(module, target), target=target, relax_pipeline=tvm.transform.Sequential([]))
    result = relax.VirtualMachine(executable, tvm.cpu())["main"](*[tvm.runtime.tensor(a) for a in arrays])
    return [r.numpy() for r in result] if isinstance(result, (list, tuple, tvm.ir.Array)) else [result.numpy()]


def random_arrays(specs: Sequence[Spec], upper: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = []
    for shape, dtype in specs:
        if dtype == "bool":
            arrays.append(rng.random(shape) < 0.5)
        elif dtype.startswith("int"):
            arrays.append(rng.integers(0, upper, shape).astype(dtype))
        else:
            arrays.append(rng.standard_normal(shape).astype(dtype))
    return arrays


def check(specs: Sequence[Spec], body: Callable[..., Any], reference: Callable[..., Any], **tolerance: float) -> None:
    arrays = random_arrays(specs)
    expected = reference(*arrays)
    expected = list(expected) if isinstance(expected, tuple) else [expected]
    actual = run(partition(specs, body), arrays)
    assert len(actual) == len(expected)
    for got, want in zip(actual, expected, strict=True):
        want = np.asarray(want)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, **{"rtol": 1e-4, "atol": 1e-4, **tolerance})


def f(*shape: int) -> Spec:
    return shape, "float32"
