"""relax.max and relax.min on TVM are right where whole rows are infinite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax

from collage.graph.from_relax import read_graph
from collage.measure.reference import ReferenceRun


@pytest.mark.parametrize("scheduled", [True, False])
@pytest.mark.parametrize(("axis", "keepdims"), [([1], False), ([0, 2], True), (None, False), ([-1], True)])
@pytest.mark.parametrize(("operator", "expected"), [(relax.op.max, np.max), (relax.op.min, np.min)])
def test_rows_of_infinities(
    operator: Callable[..., Any], expected: Callable[..., Any], axis: list[int] | None, keepdims: bool, scheduled: bool
) -> None:
    x = relax.Var("x", relax.TensorType((4, 6, 33), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(operator(x, axis=axis, keepdims=keepdims))
        builder.emit_func_output(result)
    module = builder.get()
    array = np.random.default_rng(0).standard_normal((4, 6, 33)).astype("float32")
    array[1], array[2] = -np.inf, np.inf
    run = ReferenceRun(module, read_graph(module), 1, [array], scheduled=scheduled)
    axes = None if axis is None else tuple(axis)
    np.testing.assert_array_equal(run.outputs[0], expected(array, axis=axes, keepdims=keepdims))
