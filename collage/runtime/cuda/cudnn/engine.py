"""Runs convolutions, pooling, rows and attention by cuDNN, on the caller's device memory and TVM's stream. No Python
runs when a function of the engine is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collage.runtime.cuda.choices import ChoosingEngine
from collage.runtime.cuda.native import CUDA_HEADERS

ENGINE = ChoosingEngine(
    "cudnn",
    Path(__file__).with_name("engine.cc"),
    {
        "cudnn_frontend.h": "nvidia-cudnn-frontend",
        "cudnn.h": "nvidia-cudnn-cu13",
        "nvrtc.h": "nvidia-cuda-nvrtc",
        **CUDA_HEADERS,
    },
    ("libcudart.so.13", "libnvrtc.so.13", "libcublasLt.so.13", "libcudnn.so.9"),
    ("-O1",),  # the frontend is 20,000 lines of templates, and none of it is in a hot loop
)


def plans(blob: bytes, device: Mapping[str, Any]) -> dict[str, list[list[str]]]:
    """What cuDNN could run a partition by on a device that need not be there: form -> stages -> names of plans.

    Parameters
    ----------
    blob
        Of the partition.
    device
        Its properties as cuDNN spells them ("deviceVer", "multiProcessorCount", ...).

    Raises
    ------
    CompiledModelError
        cuDNN is not installed, or does not understand the device.
    """
    result: dict[str, list[list[str]]] = ENGINE.ask("plans", blob, device)
    return result
