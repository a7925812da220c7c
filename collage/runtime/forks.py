"""Forks: whether a process is another one than that in which something was made.

    made_in = forks.count
    ...
    forked = forks.count != made_in

They are counted when they happen: asking for the number of the process is a system call, in every call of a model.

Attributes
----------
count
    Forks between the process that first imported this module and the one that runs.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any
from weakref import WeakSet

count = 0
_held: WeakSet[Any] = WeakSet()


def hold(engine: Any) -> None:
    """Never destroy it in a forked process, not even when that ends: an engine's destructor waits for its threads, and
    they stayed behind.

    Raises
    ------
    TypeError
        Python cannot refer to it weakly.
    """
    _held.add(engine)


def _in_child() -> None:
    global count
    count += 1
    for engine in list(_held):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine))


os.register_at_fork(after_in_child=_in_child)
