"""Runs convolutions by oneDNN, on the caller's memory and the threads of TVM's pool.

The function is a C++ one (`collage/runtime/onednn/engine.cc`): no Python runs when it is called.
"""

from collage.runtime.onednn.native import create

__all__ = ["create"]
