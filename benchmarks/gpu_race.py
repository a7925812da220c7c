"""A race: contestants in processes of their own, checked against float64, timed by turns (A B C A B C).

They prepare side by side, and load onto the device one after another: who tries out kernels there is not disturbed.
What slows one turn (clocks, heat, a neighbour) slows the turns beside it, so that the ratio of two contestants is the
median of the ratios of turns that followed each other, with its confidence interval.
"""

from __future__ import annotations

import math
import os
import pickle
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np

from benchmarks.gpu_ledger import OutOfTime
from benchmarks.gpu_messages import REFERENCE, Failed, Load, Loaded, Prepared, Proceed, Timed, Turn
from benchmarks.gpu_peers import PEERS
from collage.measure.helper import command
from collage.measure.statistics import converged, median_interval, paired_ratio

#: Largest error of a whole network relative to its largest output, by the type that it computes in.
TOLERANCES: Mapping[str, float] = {"float32": 1e-3, "float16": 3e-2}
#: TF32 keeps as many digits as float16.
TF32_TOLERANCE = 3e-2
#: Seconds that one turn should take, and how many runs it has.
_TURN_S = 0.05
_RUNS = (5, 60)
_TURNS = (8, 40)
_CLOSE = 0.01


@dataclass
class Result:
    """What came of one contestant; seconds.

    Attributes
    ----------
    status: "ok", "wrong", "failed", "timeout", or "skipped" where the time did not reach.
    call, device: of each turn, the median over its runs; pipelined: of each turn, per run.
    error: against float64, relative to the largest output.
    """

    status: str
    reason: str = ""
    load_s: float = math.nan
    error: float = math.nan
    call: list[float] = field(default_factory=list)
    device: list[float] = field(default_factory=list)
    pipelined: list[float] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)

    def row(self, base: Result | None) -> dict[str, Any]:
        """JSON-ready: medians with intervals, in seconds, and ratios to another contestant's turns."""
        made: dict[str, Any] = {"status": self.status, "reason": self.reason, "versions": self.versions}
        made |= {name: value for name in ("load_s", "error") if not math.isnan(value := getattr(self, name))}
        for name in ("call", "device", "pipelined"):
            samples = getattr(self, name)
            if samples:
                made[f"{name}_s"] = _finite(median_interval(samples))
                if base is not None and base is not self and len(getattr(base, name)) == len(samples):
                    made[f"{name}_ratio"] = _finite(paired_ratio(samples, getattr(base, name)))
        return {**made, "turns": len(self.call)}


def race(
    loads: Sequence[Load], deadline: float, log: IO[bytes] | None = None, load_limit_s: float = 240.0
) -> dict[str, Result]:
    """Name -> result, for contestants on one network.

    Parameters
    ----------
    loads: the contestants, the one that ratios are to first.
    deadline: by `time.monotonic()`; loading may take all but a fifth of the time until then.
    log: where contestants' standard error goes; None is this process's.
    load_limit_s: of one contestant, from when it may use the device.

    Raises
    ------
    OutOfTime: there was none for the reference.
    """
    until = time.monotonic() + 0.8 * (deadline - time.monotonic())
    players = [_Player(load, log) for load in loads]
    results: dict[str, Result] = {}
    try:
        for player in players:
            player.start()
        exact = _reference(loads[0], until, log)
        for player in players:
            results[player.load.name] = player.result(until, load_limit_s, exact)
        racing = [p for p in players if results[p.load.name].status == "ok"]
        _take_turns(racing, results, deadline)
    finally:
        for player in players:
            player.close()
    return results


def tolerance_of(load: Load) -> float:
    return max(TOLERANCES[load.dtype], TF32_TOLERANCE if load.precision == "tf32" else 0.0)


def error_of(outputs: Sequence[np.ndarray], exact: Sequence[np.ndarray]) -> float:
    """The largest difference relative to the largest magnitude of its output; infinite where shapes differ or a value
    is not a number.
    """
    worst = 0.0 if len(outputs) == len(exact) else math.inf
    for ours, wanted in zip(outputs, exact, strict=False):
        if ours.shape != wanted.shape:
            return math.inf
        difference = float(np.max(np.abs(ours.astype("float64") - wanted), initial=0.0))
        largest = float(np.max(np.abs(wanted), initial=0.0))
        worst = max(worst, math.inf if math.isnan(difference) else difference / max(largest, 1e-30))
    return worst


def _take_turns(racing: Sequence[_Player], results: dict[str, Result], deadline: float) -> None:
    """Until all medians are known to a hundredth, or there were turns enough, or time is up."""
    runs: dict[str, int] = {}
    first = True
    for number in range(_TURNS[1] + 1):
        for player in racing:
            result = results[player.load.name]
            if result.status != "ok":
                continue
            answer = player.ask(Turn(runs.get(player.load.name, _RUNS[0])), max(deadline, time.monotonic() + 20.0))
            if isinstance(answer, Timed):
                median = float(np.median(answer.call))
                if first:  # only to learn how many runs make a turn
                    runs[player.load.name] = int(np.clip(_TURN_S / max(median, 1e-9), *_RUNS))
                    continue
                result.call.append(median)
                result.device.append(float(np.median(answer.device)))
                result.pipelined.append(answer.pipelined)
            else:
                result.status, result.reason = answer.status, answer.reason
        first = False
        alive = [r for p in racing if (r := results[p.load.name]).status == "ok"]
        settled = number >= _TURNS[0] and all(converged(r.call, _CLOSE) for r in alive)
        if settled or time.monotonic() > deadline:
            return


def _reference(load: Load, deadline: float, log: IO[bytes] | None) -> list[np.ndarray]:
    """The network's outputs in float64."""
    facts = {name: getattr(load, name) for name in ("network", "dtype", "batch", "device", "seed")}
    player = _Player(Load(REFERENCE, **facts), log)
    try:
        player.start()
        answer, _ = player.loaded(deadline, math.inf)
        if isinstance(answer, Result) and answer.status == "timeout":
            raise OutOfTime("there was no time for the reference in float64")
        if not isinstance(answer, Loaded):
            raise RuntimeError(f"there is no reference in float64: {answer.reason}")
        return list(answer.outputs)
    finally:
        player.close()


class _Player:
    """This side of one contestant."""

    def __init__(self, load: Load, log: IO[bytes] | None = None) -> None:
        self.load = load
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, and let it prepare."""
        torch = self.load.name == REFERENCE or self.load.name in PEERS
        self._process = subprocess.Popen(
            command("benchmarks.gpu_contestant", torch=torch),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            start_new_session=True,
        )
        self._send(self.load)

    def loaded(self, until: float, limit_s: float) -> tuple[Loaded | Result, bool]:
        """What came of loading; whether it was the race's end `until` that was to come first, not its own limit."""
        answer = self.receive(until)
        if not isinstance(answer, Prepared):
            return answer, True
        limit = time.monotonic() + limit_s
        self._send(Proceed())
        return self.receive(min(limit, until)), until < limit

    def result(self, until: float, limit_s: float, exact: Sequence[np.ndarray]) -> Result:
        """The contestant loaded and checked; `loaded` says what the limits are."""
        answer, cut = self.loaded(until, limit_s)
        if isinstance(answer, Result):
            if answer.status == "timeout" and cut:
                answer.status, answer.reason = "skipped", "the race had no time for it to load"
            self.close()
            return answer
        error = error_of(answer.outputs, exact)
        result = Result("ok", load_s=answer.seconds, error=error, versions=answer.versions)
        if not error <= tolerance_of(self.load):
            result.status, result.reason = "wrong", f"off by {error:.3g}, relative to the largest output"
            self.close()
        return result

    def ask(self, turn: Turn, deadline: float) -> Timed | Result:
        self._send(turn)
        answer: Timed | Result = self.receive(deadline)
        return answer

    def receive(self, deadline: float) -> Any:
        """Its answer; a result that says why there is none."""
        assert self._process is not None and self._process.stdout is not None
        stream: IO[bytes] = self._process.stdout
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            if not selector.select(max(0.0, deadline - time.monotonic())):
                self.close()
                return Result("timeout", "no answer in time")
        try:
            answer = pickle.load(stream)
        except (EOFError, pickle.UnpicklingError):
            return Result("failed", f"the process ended with status {self._process.wait()}")
        return Result("failed", answer.reason) if isinstance(answer, Failed) else answer

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # compilers have workers of their own
            process.wait()
            for stream in (process.stdin, process.stdout):
                with suppress(BrokenPipeError):
                    assert stream is not None
                    stream.close()

    def _send(self, message: Load | Proceed | Turn) -> None:
        assert self._process is not None and self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has gone; what it left is found when it is asked for its answer
            self._process.stdin.write(pickle.dumps(message))
            self._process.stdin.flush()


def _finite(interval: tuple[float, float, float]) -> list[float]:
    """An interval for JSON: too few samples have no bounds, which are then left out."""
    return [number for number in interval if math.isfinite(number)]
