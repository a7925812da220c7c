"""NasRNN: the recurrent cell found by Zoph and Le (2017), unrolled as in TASO (Jia et al. 2019) and the Collage paper.

TASO's sizes: 512 wide, 5 steps. As there, each step has weights of its own: 16 matrices, two for each of the 8 leaves
of the cell's tree.
"""

from __future__ import annotations

from math import sqrt

from onnx import ModelProto

from benchmarks.workloads.builder import GraphBuilder

_WIDTH = 512
_STEPS = 5
#: Leaves of variance 2 to 3: sigmoids neither linear nor saturated. A state's mean square is only about 1/70, hence its
#: large gain: with equal gains the first step would not show in the last state.
_INPUT_GAIN, _STATE_GAIN = 2.0, 32.0


def nasrnn(batch: int = 1, seed: int = 0, dtype: str = "float32") -> ModelProto:
    """NasRNN: a state and 5 steps' inputs of (batch, 512) to the last state; 80 MatMul, 21.0 million parameters.

    The first state is an input, not a constant, so that no step folds away.
    """
    b = GraphBuilder("nasrnn", seed, dtype)
    state = b.input("state", (batch, _WIDTH))
    steps = [b.input(f"x{step}", (batch, _WIDTH)) for step in range(_STEPS)]
    for x in steps:
        state = _cell(b, x, state)
    b.output(state, "final_state", (batch, _WIDTH))
    return b.finish()


def _cell(b: GraphBuilder, x: str, state: str) -> str:
    """Eight leaves, each a linear map of both inputs, combined by a tree of sums and products."""
    leaves = [b.op("Add", _linear(b, x, _INPUT_GAIN), _linear(b, state, _STATE_GAIN)) for _ in range(8)]
    low = (
        b.op("Add", b.op("Relu", leaves[0]), b.op("Sigmoid", leaves[3])),
        b.op("Add", b.op("Sigmoid", leaves[1]), b.op("Tanh", leaves[2])),
        b.op("Mul", b.op("Sigmoid", leaves[4]), b.op("Tanh", leaves[5])),
        b.op("Mul", b.op("Sigmoid", leaves[6]), b.op("Relu", leaves[7])),
    )
    left = b.op("Add", b.op("Sigmoid", low[1]), b.op("Tanh", low[2]))
    right = b.op("Mul", b.op("Tanh", low[0]), b.op("Tanh", low[3]))
    return b.op("Tanh", b.op("Mul", b.op("Tanh", left), b.op("Tanh", right)))


def _linear(b: GraphBuilder, x: str, gain: float) -> str:
    return b.op("MatMul", x, b.normal((_WIDTH, _WIDTH), sqrt(gain / _WIDTH)))
