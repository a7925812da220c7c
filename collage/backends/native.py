"""The native backend of each kind of device: TVM's own code generation. It can run what nobody else takes."""

from __future__ import annotations

from typing import Any

from collage.backends.tvm.native import NativeBackend


def native_backend(device: str, **parameters: Any) -> NativeBackend:
    """TVM for a kind of device, "cpu" or "cuda".

    Parameters
    ----------
    device
        The kind.
    parameters
        Of the backend's constructor.
    """
    if device == "cuda":
        from collage.backends.cuda.native import TVMCudaBackend

        return TVMCudaBackend(**parameters)
    from collage.backends.tvm.backend import TVMBackend

    return TVMBackend(**parameters)
