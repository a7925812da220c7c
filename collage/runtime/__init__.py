"""What a compiled model needs to run, and nothing else.

import collage.runtime

model = collage.runtime.load("resnet50.so")
probabilities = model(image)
"""

from collage.runtime.loading import load
from collage.runtime.model import CompiledModel
from collage.runtime.model_set import ModelSet
from collage.runtime.tensor_spec import TensorSpec

__all__ = ["CompiledModel", "ModelSet", "TensorSpec", "load"]
