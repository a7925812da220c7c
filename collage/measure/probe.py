"""The probe: a small network whose two halves are equal, for measurements that every backend takes part in.

Transitions are measured with one half on each of two backends. Run as a whole right before a candidate, it wakes the
threads of the candidate's backend, as the partition before it would in a network: threads that sleep take a tenth of
a millisecond and more to wake up on a virtual machine, which is longer than many a partition runs.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import tvm
from tvm import relax

#: Of the probe's one input, float32.
SHAPE = (1, 32, 28, 28)


@cache
def two_convolutions() -> Any:
    """conv2d, relu, conv2d, relu on a 1x32x28x28 tensor: the two halves are equal."""
    rng = np.random.default_rng(0)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value: Any = x
            for _ in range(2):
                weight = relax.const(rng.standard_normal((32, 32, 3, 3), dtype=np.float32) * 0.06)
                value = builder.emit(relax.op.nn.relu(builder.emit(relax.op.nn.conv2d(value, weight, padding=(1, 1)))))
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    module: tvm.IRModule = builder.get()
    return relax.transform.CanonicalizeBindings()(module)
