"""The working set of a network: weights, and what is alive at a time."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op
from tvm.script import relax as R

from collage.graph.from_relax import read_graph
from collage.graph.working_set import working_set

MIB = 1 << 20


def chain(length: int, width: int, weight: np.ndarray | None = None) -> tvm.IRModule:
    """`length` operators one after the other, each of `width` numbers."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((width,), "float32"))
    added = None if weight is None else relax.const(weight)
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for _ in range(length):
                value = builder.emit(op.nn.relu(value) if added is None else op.add(value, added))
            output = builder.emit_output(value)
        builder.emit_func_output(output)
    return builder.get()


@pytest.mark.parametrize("length", [2, 50])
def test_what_is_dead_is_used_again(length: int) -> None:
    assert working_set(read_graph(chain(length, MIB // 4))) == 2 * MIB, "a value of 1 MiB, and the one it is made from"


def test_weights_are_read_in_every_call_and_each_counts_once() -> None:
    weight = np.ones(3 * MIB // 4, np.float32)
    assert working_set(read_graph(chain(5, weight.size, weight))) == 16 * MIB, "3 MiB, and two values of 3 MiB"


def test_results_stay_alive() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((MIB // 4,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            results = [builder.emit(op.multiply(x, relax.const(float(i)))) for i in range(6)]
            output = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(output)
    assert working_set(read_graph(builder.get())) >= 7 * MIB


def test_small_networks_share_one_size() -> None:
    assert working_set(read_graph(chain(3, 10))) == working_set(read_graph(chain(3, 1000))) == MIB // 4
