"""Frontend: an ONNX file, a `torch.export` program or a Relax module becomes *canonical Relax*.

Canonical Relax is what every later step may rely on:

- one Relax function, `main`; the only other functions are PrimFuncs that a `call_tir` uses;
- its body is one dataflow block in A-normal form whose bindings are calls, tuples and tuple projections (no block
  at all when the network only returns its inputs or constants); a single result is a variable, an input or a
  constant, several are one flat tuple, bound last;
- weights are inline constants; every tensor has a static shape; no batch normalisation, no dropout, no control
  flow;
- what depends on nothing but constants is folded, what nothing uses is gone, equal calls are merged.
"""

from __future__ import annotations

from collage.frontend.load import batch_shapes, input_shapes, load
from collage.frontend.values import input_specs, output_specs
from collage.runtime.tensor_spec import TensorSpec

__all__ = ["TensorSpec", "batch_shapes", "input_shapes", "input_specs", "load", "output_specs"]
