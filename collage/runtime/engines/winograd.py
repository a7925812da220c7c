"""Runs convolutions by Winograd's minimal filtering, on the caller's memory and the threads of TVM's pool.

The function is a C++ one (`collage/runtime/winograd/engine.cc`): no Python runs when it is called.
"""

from collage.runtime.winograd.native import ENGINE

create = ENGINE.create
