"""What a compiled model needs to run, and nothing else.

import collage.runtime

model = collage.runtime.load("resnet50.so")
probabilities = model(image)
"""

from collage.runtime.model import CompiledModel, load
from collage.runtime.tensor_spec import TensorSpec

__all__ = ["CompiledModel", "TensorSpec", "load"]
