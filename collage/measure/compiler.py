"""The compiling process: calls functions that compile, one at a time, and reports what they return or raise.

`collage.measure.pool` starts it, as a `collage.measure.helper`. It ends when it has been idle for long.
"""

from __future__ import annotations

import os
import select
import sys
from typing import Any

import cloudpickle

from collage.measure.faults import Failure
from collage.measure.framing import receive, send
from collage.measure.helper import channels
from collage.measure.job import Begin, Failed, Ready, Returned, Task

#: Seconds without a task after which it ends.
_IDLE_S = 300.0


def main() -> None:
    incoming, outgoing = channels()
    send(outgoing, Ready())
    while select.select([incoming], [], [], _IDLE_S)[0]:
        try:
            task: Task = receive(incoming)
        except EOFError:
            return
        send(outgoing, Begin(0, "compiling"))
        send(outgoing, _answer(task))


def _answer(task: Task) -> Returned | Failed:
    sys.path[:] = task.paths  # functions and backends are found where the tuning process finds them
    try:
        function, item = cloudpickle.loads(task.call)
        return Returned(function(item))
    except Exception as error:  # whatever a compiler raises makes this one candidate fail, with the reason
        return Failed(0, Failure.of(error, "does not compile"))


def task(function: Any, item: Any) -> Task:
    """The message that has a function called. What is defined in the user's script goes with it."""
    return Task(tuple(sys.path), cloudpickle.dumps((function, item)))


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # compilers' threads may take seconds to wind down; nothing is left to be saved
