"""What a canonical module becomes for the device that it is to run on."""

from __future__ import annotations

import tvm

from collage.frontend.passes.layout import channels_last
from collage.frontend.passes.parallel_products import merged_products


def for_device(module: tvm.IRModule, device: str) -> tvm.IRModule:
    """A canonical module as it is partitioned for a device; the same for a module that it has made."""
    return merged_products(channels_last(module)) if device == "cuda" else module
