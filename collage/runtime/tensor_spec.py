"""TensorSpec: name, shape and dtype of one input or output of a network.

Shared by the compiler side (the frontend derives it from a module) and by what runs a compiled model (which checks
its inputs against it); it therefore imports nothing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TensorSpec:
    """One tensor at the boundary of a network.

    Attributes
    ----------
    name
        As in the original model; `output0`, `output1`, ... where the model gives its outputs no names.
    shape
        Extents; empty for a scalar; -1 where one depends on the values of a call, in outputs only.
    dtype
        As in NumPy, e.g. "float32".
    """

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join('?' if d < 0 else str(d) for d in self.shape)}]"

    @property
    def is_open(self) -> bool:
        """Whether the shape is only known after a call."""
        return any(extent < 0 for extent in self.shape)
