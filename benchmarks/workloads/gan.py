"""The generator of DCGAN (Radford et al. 2016) for 64x64 images, as in PyTorch's example: transposed convolutions."""

from __future__ import annotations

from itertools import pairwise

from onnx import ModelProto

from benchmarks.workloads.builder import GraphBuilder
from benchmarks.workloads.layers import batch_norm, conv_transpose

_LATENT = 100
_CHANNELS = (512, 256, 128, 64)


def dcgan(batch: int = 1, seed: int = 0, dtype: str = "float32") -> ModelProto:
    """The generator: latent (batch, 100, 1, 1) to images (batch, 3, 64, 64) in (-1, 1); 3.6 million parameters."""
    b = GraphBuilder("dcgan", seed, dtype)
    x = conv_transpose(b, b.input("latent", (batch, _LATENT, 1, 1)), (_LATENT, _CHANNELS[0]), 4, 4, 0, gain=1.0)
    x = b.op("Relu", batch_norm(b, x, _CHANNELS[0]))
    for before, after in pairwise(_CHANNELS):
        x = b.op("Relu", batch_norm(b, conv_transpose(b, x, (before, after), 4, 2, 1), after))
    b.output(b.op("Tanh", conv_transpose(b, x, (_CHANNELS[-1], 3), 4, 2, 1)), "image", (batch, 3, 64, 64))
    return b.finish()
