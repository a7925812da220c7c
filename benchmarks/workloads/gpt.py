"""GPT-2 small (Radford et al. 2019): the prefill of an unpadded prompt, as Hugging Face's GPT2LMHeadModel exports it,
and one step of its decoding, with the keys and values of the tokens before as inputs and outputs.

Pre-normalised blocks; one Gemm for query, key and value (weights stored (in, out)) and a Split; scores kept by Where
with a constant lower triangle; GELU by its tanh formula; the head multiplies by the transposed word embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, sqrt

import numpy as np
from onnx import ModelProto, TensorProto

from benchmarks.workloads.builder import GraphBuilder
from benchmarks.workloads.layers import dense, layer_norm

_EPSILON = 1e-5
_LAYERS = 12
_WIDTH = 768
_HEADS = 12
_VOCABULARY = 50257
_POSITIONS = 1024
#: The variance that each of a block's two branches adds, so that the depth adds 1 (the paper's scaled initialisation).
_BRANCH_GAIN = 1.0 / (2 * _LAYERS)


@dataclass(frozen=True)
class _Shape:
    """The shape of a prompt."""

    batch: int
    sequence: int


def gpt2(batch: int = 1, seed: int = 0, sequence: int = 64, dtype: str = "float32") -> ModelProto:
    """GPT-2 small: (batch, sequence) token ids to (batch, sequence, 50257) logits; 124.4 million parameters."""
    b = GraphBuilder("gpt2", seed, dtype)
    shape = _Shape(batch, sequence)
    tokens = b.input("input_ids", (batch, sequence), TensorProto.INT64)
    words = b.normal((_VOCABULARY, _WIDTH), 1.0 / sqrt(_WIDTH))
    positions = b.normal((_POSITIONS, _WIDTH), 0.5 / sqrt(_WIDTH))
    places = b.op("Gather", positions, b.constant(np.arange(sequence)[None], np.int64))
    x = b.op("Add", b.op("Gather", words, tokens), places)
    for _ in range(_LAYERS):
        x = b.op("Add", _attention(b, layer_norm(b, x, _WIDTH, _EPSILON), shape), x)
        x = b.op("Add", x, _feed_forward(b, layer_norm(b, x, _WIDTH, _EPSILON), shape))
    x = layer_norm(b, x, _WIDTH, _EPSILON)
    b.output(b.op("MatMul", x, b.op("Transpose", words, perm=[1, 0])), "logits", (batch, sequence, _VOCABULARY))
    return b.finish()


def gpt2_step(batch: int = 1, seed: int = 0, sequence: int = 128, dtype: str = "float32") -> ModelProto:
    """One step of GPT-2 small: the last of `sequence` tokens, and keys and values of the others, to its logits.

    Outputs are the keys and values of all, too. The weights are those of `gpt2` of the same seed.
    """
    b = GraphBuilder("gpt2_step", seed, dtype)
    shape = _Shape(batch, 1)
    tokens = b.input("input_ids", (batch, 1), TensorProto.INT64)
    words = b.normal((_VOCABULARY, _WIDTH), 1.0 / sqrt(_WIDTH))
    positions = b.normal((_POSITIONS, _WIDTH), 0.5 / sqrt(_WIDTH))
    place = b.op("Gather", positions, b.constant([[sequence - 1]], np.int64))
    x = b.op("Add", b.op("Gather", words, tokens), place)
    present: list[tuple[str, str]] = []
    for layer in range(_LAYERS):
        past = [(batch, _HEADS, sequence - 1, _WIDTH // _HEADS)] * 2
        cache = [b.input(f"past_{layer}_{kind}", size) for kind, size in zip(("key", "value"), past, strict=True)]
        mixed, key, value = _cached_attention(b, layer_norm(b, x, _WIDTH, _EPSILON), shape, cache[0], cache[1])
        present += [(f"present_{layer}_key", key), (f"present_{layer}_value", value)]
        x = b.op("Add", mixed, x)
        x = b.op("Add", x, _feed_forward(b, layer_norm(b, x, _WIDTH, _EPSILON), shape))
    x = layer_norm(b, x, _WIDTH, _EPSILON)
    b.output(b.op("MatMul", x, b.op("Transpose", words, perm=[1, 0])), "logits", (batch, 1, _VOCABULARY))
    for name, tensor in present:
        b.output(tensor, name, (batch, _HEADS, sequence, _WIDTH // _HEADS))
    return b.finish()


def _cached_attention(b: GraphBuilder, x: str, shape: _Shape, keys: str, values: str) -> tuple[str, str, str]:
    """Attention of one token to itself and those before; then the keys and the values of all."""
    size = _WIDTH // _HEADS
    fused = _conv1d(b, x, (_WIDTH, 3 * _WIDTH), shape)
    parts = b.op_many("Split", 3, fused, b.ints(_WIDTH, _WIDTH, _WIDTH), axis=2)
    split = (b.op("Reshape", part, b.ints(shape.batch, 1, _HEADS, size)) for part in parts)
    query, key, value = (b.op("Transpose", part, perm=[0, 2, 1, 3]) for part in split)
    keys, values = b.op("Concat", keys, key, axis=2), b.op("Concat", values, value, axis=2)
    scores = b.op("MatMul", query, b.op("Transpose", keys, perm=[0, 1, 3, 2]))
    weights = b.op("Softmax", b.op("Div", scores, b.constant(sqrt(size))), axis=-1)
    context = b.op("Transpose", b.op("MatMul", weights, values), perm=[0, 2, 1, 3])
    context = b.op("Reshape", context, b.ints(shape.batch, 1, _WIDTH))
    return _conv1d(b, context, (_WIDTH, _WIDTH), shape, _BRANCH_GAIN), keys, values


def _attention(b: GraphBuilder, x: str, shape: _Shape) -> str:
    """Causal self-attention of all heads."""
    size = _WIDTH // _HEADS
    fused = _conv1d(b, x, (_WIDTH, 3 * _WIDTH), shape)
    parts = b.op_many("Split", 3, fused, b.ints(_WIDTH, _WIDTH, _WIDTH), axis=2)
    query, key, value = (b.op("Reshape", part, b.ints(shape.batch, shape.sequence, _HEADS, size)) for part in parts)
    query = b.op("Transpose", query, perm=[0, 2, 1, 3])
    key = b.op("Transpose", key, perm=[0, 2, 3, 1])
    value = b.op("Transpose", value, perm=[0, 2, 1, 3])
    scores = b.op("Div", b.op("MatMul", query, key), b.constant(sqrt(size)))
    causal = b.constant(np.tri(shape.sequence, dtype=np.bool_)[None, None], np.bool_)
    weights = b.op("Softmax", b.op("Where", causal, scores, b.lowest()), axis=-1)
    context = b.op("Transpose", b.op("MatMul", weights, value), perm=[0, 2, 1, 3])
    context = b.op("Reshape", context, b.ints(shape.batch, shape.sequence, _WIDTH))
    return _conv1d(b, context, (_WIDTH, _WIDTH), shape, _BRANCH_GAIN)


def _feed_forward(b: GraphBuilder, x: str, shape: _Shape) -> str:
    """Two linear maps with GELU, x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))), between."""
    x = _conv1d(b, x, (_WIDTH, 4 * _WIDTH), shape)
    cubic = b.op("Add", x, b.op("Mul", b.op("Pow", x, b.constant(3.0)), b.constant(0.044715)))
    tanh = b.op("Tanh", b.op("Mul", cubic, b.constant(sqrt(2.0 / pi))))
    gelu = b.op("Mul", b.op("Mul", x, b.constant(0.5)), b.op("Add", tanh, b.constant(1.0)))
    return _conv1d(b, gelu, (4 * _WIDTH, _WIDTH), shape, 2.0 * _BRANCH_GAIN)


def _conv1d(b: GraphBuilder, x: str, widths: tuple[int, int], shape: _Shape, gain: float = 1.0) -> str:
    """A linear map of the last axis as a Gemm between two Reshapes."""
    rows = b.op("Reshape", x, b.ints(-1, widths[0]))
    y = dense(b, rows, widths, gain, transposed=False)
    return b.op("Reshape", y, b.ints(shape.batch, shape.sequence, widths[1]))
