"""A vision transformer, ViT-B/16 (Dosovitskiy et al. 2021), as torchvision's vit_b_16 exports.

Patches by a convolution whose stride is its window, a learnt class token before them, pre-normalised blocks with one
linear map for query, key and value, GELU by Erf, and the classifier on the class token.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from onnx import ModelProto

from benchmarks.workloads.builder import GraphBuilder
from benchmarks.workloads.layers import conv, dense, layer_norm, linear

_EPSILON = 1e-6
_LAYERS = 12
_WIDTH = 768
_HEADS = 12
_PATCH = 16
_IMAGE = 224
_TOKENS = (_IMAGE // _PATCH) ** 2 + 1
#: The variance that each of a block's two branches adds, so that the depth adds 1.
_BRANCH_GAIN = 1.0 / (2 * _LAYERS)


def vit_b_16(batch: int = 1, seed: int = 0, dtype: str = "float32") -> ModelProto:
    """ViT-B/16: (batch, 3, 224, 224) to 1000 logits; 86.6 million parameters."""
    b = GraphBuilder("vit_b_16", seed, dtype)
    image = b.input("image", (batch, 3, _IMAGE, _IMAGE))
    patches = conv(b, image, (3, _WIDTH), (_PATCH, _PATCH), _PATCH, (0, 0, 0, 0), gain=1.0, bias=True)
    patches = b.op("Transpose", b.op("Reshape", patches, b.ints(batch, _WIDTH, _TOKENS - 1)), perm=[0, 2, 1])
    token = b.op("Expand", b.normal((1, 1, _WIDTH), 1.0), b.ints(batch, 1, _WIDTH))
    x = b.op("Add", b.op("Concat", token, patches, axis=1), b.normal((1, _TOKENS, _WIDTH), 0.3))
    for _ in range(_LAYERS):
        x = b.op("Add", _attention(b, layer_norm(b, x, _WIDTH, _EPSILON), batch), x)
        x = b.op("Add", _feed_forward(b, layer_norm(b, x, _WIDTH, _EPSILON)), x)
    first = b.op("Gather", layer_norm(b, x, _WIDTH, _EPSILON), b.constant(0, np.int64), axis=1)
    b.output(dense(b, first, (_WIDTH, 1000)), "logits", (batch, 1000))
    return b.finish()


def _attention(b: GraphBuilder, x: str, batch: int) -> str:
    """Self-attention of all heads."""
    size = _WIDTH // _HEADS
    fused = linear(b, x, (_WIDTH, 3 * _WIDTH))
    parts = b.op_many("Split", 3, fused, b.ints(_WIDTH, _WIDTH, _WIDTH), axis=2)
    query, key, value = (b.op("Reshape", part, b.ints(batch, _TOKENS, _HEADS, size)) for part in parts)
    query = b.op("Mul", b.op("Transpose", query, perm=[0, 2, 1, 3]), b.constant(1.0 / sqrt(size)))
    key = b.op("Transpose", key, perm=[0, 2, 3, 1])
    value = b.op("Transpose", value, perm=[0, 2, 1, 3])
    weights = b.op("Softmax", b.op("MatMul", query, key), axis=-1)
    context = b.op("Transpose", b.op("MatMul", weights, value), perm=[0, 2, 1, 3])
    return linear(b, b.op("Reshape", context, b.ints(batch, _TOKENS, _WIDTH)), (_WIDTH, _WIDTH), _BRANCH_GAIN)


def _feed_forward(b: GraphBuilder, x: str) -> str:
    """Two linear maps with a GELU between."""
    wide = linear(b, x, (_WIDTH, 4 * _WIDTH))
    erf = b.op("Erf", b.op("Div", wide, b.constant(sqrt(2.0))))
    gelu = b.op("Mul", b.op("Mul", wide, b.op("Add", erf, b.constant(1.0))), b.constant(0.5))
    return linear(b, gelu, (4 * _WIDTH, _WIDTH), 2.0 * _BRANCH_GAIN)
