"""Pool: compiling processes, each of which calls one function at a time (`collage.measure.compiler`).

A call that takes too long is killed, with its process. If a process dies, or a machine is to blame for a failure
(`collage.measure.faults`), the call is repeated in a fresh process.
"""

from __future__ import annotations

import os
import selectors
from collections import deque
from collections.abc import Callable, Iterable
from functools import cache
from threading import Lock
from typing import Generic, TypeVar

from collage.errors import CollageError
from collage.measure import compiler
from collage.measure.faults import Failure, Trials
from collage.measure.helper_process import Deadline, HelperProcess
from collage.measure.job import Begin, Failed, Ready, Returned, Task
from collage.runtime.threads import thread_environment

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Seconds in which a process has to come up.
_START_S = 300.0
#: How many processes that do not come up are too many.
_FAILED_STARTS = 3


def shared_pool() -> Pool:
    """The pool of this process. Its processes take seconds to come up, so they stay until they have been idle for
    long.
    """
    return _pool_of(os.getpid())


@cache
def _pool_of(_process: int) -> Pool:
    """A fork of this process has none of its children."""
    return Pool()


class Pool:
    """Compiling processes, started when they are needed, for all threads of this process."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        self._lock = Lock()

    def map(
        self, function: Callable[[Item], Result], items: Iterable[Item], jobs: int, seconds: float
    ) -> list[Result | Failure]:
        """What the function returns for each item, or why it returns nothing.

        Parameters
        ----------
        function, items
            Are pickled (`cloudpickle`). Items are taken a few ahead of what is worked on, so that an iterator makes
            them meanwhile.
        jobs
            How many items are worked on at the same time.
        seconds
            Limit of each item, in time in which its process could run.

        Raises
        ------
        CollageError
            Processes do not come up.
        """
        return _Mapping(self, function, items, seconds).run(jobs)

    def start(self, count: int) -> None:
        """Have so many processes come up, which takes seconds, while something else is done."""
        with self._lock:
            while len(self._idle) < count:
                self._idle.append(_Worker())

    def take(self, fresh: bool) -> _Worker:
        """An idle process, or a new one."""
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        if worker is not None and (fresh or not worker.process.alive):
            worker.process.close()
            worker = None
        return worker or _Worker()

    def give_back(self, worker: _Worker) -> None:
        with self._lock:
            self._idle.append(worker)


class _Worker:
    """A process, and what it is at.

    Attributes
    ----------
    index
        Of the item.
    began
        Whether it has begun with it; before, the item is not to blame for anything.
    up
        Whether the process has ever been ready.
    fresh
        Whether it has not finished anything yet.
    """

    def __init__(self) -> None:
        # TVM may fold constants on its threads; here as many processes work as there are processors.
        self.process = HelperProcess("collage.measure.compiler", thread_environment(1))
        self.index, self.began, self.up, self.fresh = -1, False, False, True
        self._task: Task | None = None

    def assign(self, index: int, task: Task) -> None:
        """Begin with an item as soon as the process is up."""
        self.index, self.began, self._task = index, False, task
        self.deadline = Deadline(self.process.number, _START_S)
        if self.up:
            self.process.send(task)

    def proceed(self, seconds: float) -> Returned | Failed | None:
        """Read a message: what became of the item, whose limit is `seconds`, or None where it is not done.

        Raises
        ------
        EOFError
            The process has ended. BrokenPipeError: it has, just after it came up.
        """
        message = self.process.receive(_START_S)
        if isinstance(message, Ready):
            self.up = True
            self.process.send(self._task)
        elif isinstance(message, Begin):
            self.began = True
            self.deadline = Deadline(self.process.number, seconds)
        else:
            self.fresh = False
            finished: Returned | Failed = message
            return finished
        return None


class _Mapping(Generic[Item, Result]):
    """One call of `Pool.map`."""

    def __init__(self, pool: Pool, function: Callable[[Item], Result], items: Iterable[Item], seconds: float) -> None:
        self.pool, self.function, self.seconds = pool, function, seconds
        self.more = iter(items)
        self.items: list[Item] = []
        self.results: dict[int, Result | Failure] = {}
        self.trials: list[Trials] = []
        self.waiting: deque[int] = deque()
        self.again: deque[tuple[int, bool]] = (
            deque()
        )  # and whether in a fresh process; last, when others gave space free
        self.busy: list[_Worker] = []
        self.failed_starts = 0

    def run(self, jobs: int) -> list[Result | Failure]:
        jobs = max(1, jobs)
        try:
            while True:
                while len(self.busy) < jobs and (self.waiting or self._pull() or self.again):
                    self._begin()
                if not self.busy:
                    return [self.results[i] for i in range(len(self.items))]
                ahead = len(self.waiting) < jobs and self._pull()
                self._proceed(wait=not ahead)
        finally:  # an interrupted run leaves no compiler behind
            for worker in self.busy:
                worker.process.close()

    def _pull(self) -> bool:
        """Take one more item; False when there is none."""
        for item in self.more:
            self.waiting.append(len(self.items))
            self.items.append(item)
            self.trials.append(Trials())
            return True
        return False

    def _begin(self) -> None:
        index, fresh = (self.waiting.popleft(), False) if self.waiting else self.again.popleft()
        worker = self.pool.take(fresh)
        self.busy.append(worker)
        try:
            worker.assign(index, compiler.task(self.function, self.items[index]))
        except BrokenPipeError:
            self._ended(worker)

    def _proceed(self, wait: bool) -> None:
        """Hear processes that have something to say, have ended, or are overdue; wait until one does."""
        with selectors.DefaultSelector() as selector:
            for worker in self.busy:
                selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
            ready = selector.select(min(worker.deadline.left() for worker in self.busy) if wait else 0.0)
        stirred = [key.data for key, _ in ready]
        for worker in stirred:
            self._advance(worker)
        for worker in [w for w in self.busy if w not in stirred and not w.deadline.left()]:
            self._overdue(worker)

    def _advance(self, worker: _Worker) -> None:
        try:
            finished = worker.proceed(self.seconds)
        except (EOFError, BrokenPipeError):
            self._ended(worker)
            return
        if finished is None:
            return
        self.busy.remove(worker)
        self.pool.give_back(worker)
        if isinstance(finished, Failed):
            self._failed(worker, finished.failure)
        else:
            self.results[worker.index] = finished.value

    def _overdue(self, worker: _Worker) -> None:
        blame = worker.deadline.blame
        if worker.began:
            self._failed(worker, Failure(f"does not compile within {self.seconds:g} s", blame))
            self._discard(worker)
        else:
            self._discard(worker, f"no answer within {_START_S:g} s")

    def _ended(self, worker: _Worker) -> None:
        code, cause = worker.process.exit_status()
        if worker.began:
            self._failed(worker, Failure.of_exit(code, "crashes the compiler", cause))
        self._discard(worker, cause)

    def _failed(self, worker: _Worker, failure: Failure) -> None:
        verdict = self.trials[worker.index].judge(failure, worker.fresh)
        if verdict is None:
            self.again.append((worker.index, failure.blame == "crash"))
        else:
            self.results[worker.index] = verdict

    def _discard(self, worker: _Worker, cause: str = "") -> None:
        """Stop a process; the item that it had not begun with waits again.

        Raises
        ------
        CollageError
            No process comes up.
        """
        self.busy.remove(worker)
        worker.process.close()
        if worker.began:
            return
        self.waiting.appendleft(worker.index)
        self.failed_starts += not worker.up  # one that was idle may have ended by itself
        if self.failed_starts >= _FAILED_STARTS:
            raise CollageError(f"no compiling process comes up: {cause}")
