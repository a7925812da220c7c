"""Which lowering a plan gets: that of its native backends, or of TVM's own on the device."""

from __future__ import annotations

from collections.abc import Sequence

from collage.backends.base import Backend
from collage.backends.lowering import Lowering
from collage.backends.native import native_backend


def lowering_of(device: str, threads: int, backends: Sequence[Backend] = ()) -> Lowering:
    """The lowering of a kind of device.

    Parameters
    ----------
    device
        "cpu" or "cuda".
    threads
        That CPU kernels run on.
    backends
        Those of the plan; native ones know tuning records, and the architecture to compile for.

    Raises
    ------
    BackendUnavailableError
        There is no device to compile for, and no backend names one.
    """
    found = [lowering for backend in backends if (lowering := backend.lowering(threads)) is not None]
    if not found:
        found = [native_backend(device).lowering(threads)]
    return next((lowering for lowering in found if lowering.tuning_records is not None), found[0])
