"""Runs matrix products by cuBLASLt, on the caller's device memory and TVM's stream. No Python runs when a function of
the engine is called.
"""

from __future__ import annotations

from pathlib import Path

from collage.runtime.cuda.choices import ChoosingEngine
from collage.runtime.cuda.native import CUDA_HEADERS

ENGINE = ChoosingEngine(
    "cublas",
    Path(__file__).with_name("engine.cc"),
    {"cublasLt.h": "nvidia-cublas", **CUDA_HEADERS},
    ("libcudart.so.13", "libcublasLt.so.13"),
)
