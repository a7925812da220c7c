"""Entry: a contestant in a contest. It is loaded when it is needed, checked once, and takes turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from collage.cost.cost import Cost
from collage.deployed.messages import Check, Checked, Failed, Load, Loaded, Ran, Run, Samples, Time, Watch, Watched
from collage.deployed.process import Contestant, ContestantLost, NoAnswer
from collage.deployed.protocol import EndToEnd

#: A first call that takes so many times as long as the fastest contestant's calls is hopeless, and ended. First calls
#: touch all weights for the first time, and engines choose kernels then.
_HOPELESS = 10.0
#: Seconds that every first call gets.
_FIRST_CALL_S = 3.0
#: Seconds in which a model is loaded, or watched: engines compile then.
_LOAD_S = 300.0
#: Seconds that a turn may take beyond what is expected.
_PATIENCE_S = 60.0
STOPPED = "stopped early"

Asked = TypeVar("Asked")


@dataclass
class Entry:
    """One contestant, and what is known of it.

    Attributes
    ----------
    load
        What its process loads.
    expected
        Paths of `.npy` files with the outputs of a correct contestant.
    tolerance
        Largest error of its outputs, relative to the largest reference value.
    problem
        Why it is out: Invalid when that is its own fault, or when it is far too slow; Unknown when it is the machine's
        fault; None while it takes part.
    latency
        Seconds of its calls, as last seen; 0 before it was called.
    resident
        Bytes of memory that its process holds, or held last.
    """

    load: Load
    expected: tuple[str, ...]
    tolerance: float
    problem: Cost | None = None
    latency: float = 0.0
    resident: int = 0
    _process: Contestant | None = field(default=None, repr=False)
    _lost: bool = False

    @property
    def is_loaded(self) -> bool:
        """Whether its process holds the model now."""
        return self._process is not None and self._process.loaded

    @property
    def processes(self) -> tuple[int, ...]:
        """The number of its process, where it has one."""
        return () if self._process is None else (self._process.number,)

    def start(self) -> None:
        """Let its process come up, beside whatever else is going on."""
        if self._process is None and self.problem is None:
            self._process = Contestant()

    def begin(self) -> None:
        """Let it load, beside whatever else is going on; `ready` waits for it."""
        self.start()
        if self._process is not None and not self._process.loaded:
            self._process.begin(self.load)

    def ready(self, fastest: float) -> bool:
        """Whether it is loaded, and gives the right numbers; it is loaded now where it is not.

        Parameters
        ----------
        fastest
            Seconds of a call of the fastest contestant so far. Who is far slower is out after one call.
        """
        return self._attempt(lambda process: True, fastest) or False

    def turn(self, protocol: EndToEnd, fastest: float) -> tuple[float, ...]:
        """Seconds of calls that follow each other; () when it is out."""
        seconds = protocol.turn(self.latency)
        calls = protocol.calls if protocol.calls * self.latency <= protocol.turn_s[1] else 1
        # The last call begins before the time is over, so half of one is taken off: they end with the turn on average.
        half = self.latency / 2
        request = Time(max(0.0, seconds - half), calls, max(0.0, seconds / 2 - half))
        found = self._attempt(lambda p: p.ask(request, _PATIENCE_S + 20 * calls * self.latency), fastest)
        if not isinstance(found, Samples):
            return ()
        self.latency = statistics.median(found.seconds)
        return found.seconds

    def watch(self, protocol: EndToEnd, fastest: float) -> Watched | None:
        """What each of its calls takes; None when it is out."""
        found = self._attempt(lambda process: process.ask(Watch(protocol.watched_runs), _LOAD_S), fastest)
        return found if isinstance(found, Watched) else None

    def run(self, request: Run, fastest: float) -> Ran | None:
        """What it gives for some samples; None when it is out."""
        found = self._attempt(lambda process: process.ask(request, _LOAD_S), fastest)
        return found if isinstance(found, Ran) else None

    def park(self) -> None:
        """End its process, for room; it is loaded again when it is needed."""
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def _attempt(self, ask: Callable[[Contestant], Asked], fastest: float) -> Asked | None:
        """What the process answers; it is loaded before, where it is not. A process that is lost is replaced once."""
        while self.problem is None:
            self.start()
            assert self._process is not None
            try:
                if self._process.loaded or self._enter(self._process, fastest):
                    found = ask(self._process)
                    if not isinstance(found, Failed):
                        return found
                    self._leave(Cost.invalid(found.reason))
            except ContestantLost as lost:
                self.park()
                if self._lost:
                    ours = isinstance(lost, NoAnswer) or lost.killed
                    self._leave(Cost.unknown(str(lost)) if ours else Cost.invalid(f"crashes: {lost}"))
                self._lost = True
        return None

    def _enter(self, process: Contestant, fastest: float) -> bool:
        answer = process.load(self.load, _LOAD_S)
        first = self.latency == 0.0
        limit = min(_LOAD_S, max(_FIRST_CALL_S, _HOPELESS * fastest)) if first else _LOAD_S
        if isinstance(answer, Loaded):
            try:
                answer = process.ask(Check(self.expected, self.tolerance), limit)
            except NoAnswer:
                if not first:
                    raise
                return self._leave(Cost.invalid(f"{STOPPED}: its first call took more than {limit:.3g} s"))
        if isinstance(answer, Checked) and not answer.problem:
            self.latency, self.resident = self.latency or answer.seconds, answer.resident
            return True
        problem = answer.problem if isinstance(answer, Checked) else getattr(answer, "reason", "")
        return self._leave(Cost.invalid(problem))

    def _leave(self, problem: Cost) -> bool:
        self.problem = problem
        self.park()
        return False
