"""BERT encoders (Devlin et al. 2019): BERT-base, a 6-layer MiniLM (Wang et al. 2020), BERT-tiny (Turc et al. 2019) and
one for tests.

As Hugging Face's BertModel exports: three int64 inputs, embeddings by Gather, an additive mask made of the attention
mask, linear maps as MatMul and Add, LayerNormalization, GELU by Erf, the pooler's output beside the last hidden state.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from onnx import ModelProto, TensorProto

from benchmarks.workloads.builder import GraphBuilder
from benchmarks.workloads.layers import dense, layer_norm, linear

_EPSILON = 1e-12


@dataclass(frozen=True)
class _Config:
    """Sizes of an encoder; `inner` is the width of the feed-forward layer."""

    layers: int
    width: int
    heads: int
    inner: int
    sequence: int
    vocabulary: int = 30522
    positions: int = 512


def bert_base(batch: int = 1, seed: int = 0, sequence: int = 128, dtype: str = "float32") -> ModelProto:
    """BERT-base, uncased: 12 layers, 768 wide, 12 heads, 109.5 million parameters."""
    return _encoder("bert_base", _Config(12, 768, 12, 3072, sequence), batch, seed, dtype)


def minilm(batch: int = 1, seed: int = 0, sequence: int = 128, dtype: str = "float32") -> ModelProto:
    """MiniLM-L6-H384: 6 layers, 384 wide, 12 heads, 22.7 million parameters."""
    return _encoder("minilm", _Config(6, 384, 12, 1536, sequence), batch, seed, dtype)


def bert_tiny(batch: int = 1, seed: int = 0, sequence: int = 64, dtype: str = "float32") -> ModelProto:
    """BERT-tiny, uncased: 2 layers, 128 wide, 2 heads, 4.4 million parameters."""
    return _encoder("bert_tiny", _Config(2, 128, 2, 512, sequence), batch, seed, dtype)


def tiny_bert(batch: int = 1, seed: int = 0, sequence: int = 16, dtype: str = "float32") -> ModelProto:
    """Two layers, 64 wide, 4 heads, a vocabulary of 100."""
    return _encoder("tiny_bert", _Config(2, 64, 4, 128, sequence, vocabulary=100, positions=32), batch, seed, dtype)


def _encoder(name: str, config: _Config, batch: int, seed: int, dtype: str) -> ModelProto:
    b = GraphBuilder(name, seed, dtype)
    shape = (batch, config.sequence)
    tokens, mask, types = (
        b.input(i, shape, TensorProto.INT64) for i in ("input_ids", "attention_mask", "token_type_ids")
    )
    bias = _mask_bias(b, mask)
    x = _embed(b, tokens, types, config)
    for _ in range(config.layers):
        x = _attention(b, x, bias, config, batch)
        x = _feed_forward(b, x, config)
    pooled = b.op("Tanh", dense(b, b.op("Gather", x, b.constant(0, np.int64), axis=1), (config.width, config.width)))
    b.output(x, "last_hidden_state", (*shape, config.width))
    b.output(pooled, "pooler_output", (batch, config.width))
    return b.finish()


def _mask_bias(b: GraphBuilder, mask: str) -> str:
    """(batch, sequence) of 1 and 0 to (batch, 1, 1, sequence) of 0 and the lowest number, to be added to the
    scores."""
    kept = b.op("Cast", b.op("Unsqueeze", mask, b.ints(1, 2)), to=b.element_type)
    return b.op("Mul", b.op("Sub", b.constant(1.0), kept), b.lowest())


def _embed(b: GraphBuilder, tokens: str, types: str, config: _Config) -> str:
    """The sum of word, token type and position embeddings, normalised."""
    words = b.op("Gather", b.normal((config.vocabulary, config.width), 1.0), tokens)
    kinds = b.op("Gather", b.normal((2, config.width), 0.3), types)
    table = b.normal((config.positions, config.width), 0.3)
    places = b.op("Gather", table, b.constant(np.arange(config.sequence)[None], np.int64))
    return layer_norm(b, b.op("Add", b.op("Add", words, kinds), places), config.width, _EPSILON)


def _attention(b: GraphBuilder, x: str, bias: str, config: _Config, batch: int) -> str:
    """Self-attention of all heads, the shortcut and the normalisation after it."""
    size = config.width // config.heads
    split = b.ints(batch, config.sequence, config.heads, size)
    query, key, value = (b.op("Reshape", linear(b, x, (config.width, config.width)), split) for _ in range(3))
    query = b.op("Transpose", query, perm=[0, 2, 1, 3])
    key = b.op("Transpose", key, perm=[0, 2, 3, 1])
    value = b.op("Transpose", value, perm=[0, 2, 1, 3])
    scores = b.op("Mul", b.op("MatMul", query, key), b.constant(1.0 / sqrt(size)))
    weights = b.op("Softmax", b.op("Add", scores, bias), axis=-1)
    context = b.op("Transpose", b.op("MatMul", weights, value), perm=[0, 2, 1, 3])
    context = b.op("Reshape", context, b.ints(batch, config.sequence, config.width))
    return layer_norm(b, b.op("Add", linear(b, context, (config.width, config.width)), x), config.width, _EPSILON)


def _feed_forward(b: GraphBuilder, x: str, config: _Config) -> str:
    """Two linear maps with a GELU between, the shortcut and the normalisation after it."""
    wide = linear(b, x, (config.width, config.inner))
    erf = b.op("Erf", b.op("Div", wide, b.constant(sqrt(2.0))))
    gelu = b.op("Mul", b.op("Mul", wide, b.op("Add", erf, b.constant(1.0))), b.constant(0.5))
    return layer_norm(b, b.op("Add", linear(b, gelu, (config.inner, config.width), 2.0), x), config.width, _EPSILON)
