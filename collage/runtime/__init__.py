"""What a compiled model needs to run, and nothing else.

    import collage.runtime

    model = collage.runtime.load("resnet50.so")
    probabilities = model(image)
"""

from collage.runtime.model import CompiledModel, TensorInfo, load

__all__ = ["CompiledModel", "TensorInfo", "load"]
