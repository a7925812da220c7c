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

import os

count = 0


def _in_child() -> None:
    global count
    count += 1


os.register_at_fork(after_in_child=_in_child)
