"""The timing process: loads rivals, checks them, and times them interleaved (A B A B), one thing at a time.

Started by `collage.measure.runner` as `python -m collage.measure.worker`. Before everything that may hang or crash
it says which rival it turns to, so that the tuning process knows whom to blame.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import IO

import numpy as np
import tvm

from collage.measure.check import wrong_numbers
from collage.measure.job import Begin, Done, Event, Failed, Job, Timed, receive, send
from collage.measure.loaded import LoadedArtifact, Wakers
from collage.measure.protocol import Protocol
from collage.measure.statistics import converged
from collage.runtime.threads import configure_threads

SLOW = "stopped early: far slower than its rivals"
#: A single run counts when it is this many times beyond `Protocol.slow_factor`.
_HOPELESS = 8
#: A run that takes this long is not repeated for better numbers when it is hopeless anyway, in seconds.
_LONG_S = 1.0

Say = Callable[[Event], None]


def main() -> None:
    """Serve jobs until the other side closes the pipe. Libraries may print what they like: it goes to standard
    error.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    jobs = os.fdopen(os.dup(0), "rb")
    events = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(jobs, events)


def serve(jobs: IO[bytes], events: IO[bytes]) -> None:
    wakers = Wakers()
    while True:
        try:
            job = receive(jobs)
        except EOFError:
            return
        run(job, wakers, lambda event: send(events, event))
        send(events, Done())


def run(job: Job, wakers: Wakers, say: Say) -> None:
    """Load and check every rival, then sample those that are right."""
    configure_threads(job.threads)
    inputs = [tvm.runtime.tensor(np.load(path)) for path in job.inputs]
    expected = [np.load(path) for path in job.expected]
    rivals: dict[int, LoadedArtifact] = {}
    first: dict[int, float] = {}
    for i, artifact in enumerate(job.artifacts):
        say(Begin(i, "loading"))
        try:
            loaded = LoadedArtifact(artifact, inputs, wakers.of(artifact))
            say(Begin(i, "running"))
            begin = time.perf_counter()
            outputs = loaded.run()
            took = time.perf_counter() - begin
            problem = wrong_numbers(outputs, expected, job.protocol.tolerance)
            if problem is None:
                say(Begin(i, "timing"))
                hopeless = took > max(_LONG_S, _HOPELESS * job.protocol.slow_factor * min(first.values(), default=took))
                first[i] = took if hopeless else loaded.time_once(job.protocol, job.threads)
                rivals[i] = loaded
        except Exception as error:  # whatever a backend raises makes this one candidate Invalid, with the reason
            problem = f"does not run: {_describe(error)}"
        if problem is not None:
            say(Failed(i, problem))
    for i, (samples, reason) in sample(rivals, first, job.protocol, job.threads, say).items():
        say(Timed(i, tuple(samples), reason))


def sample(
    rivals: dict[int, LoadedArtifact], first: dict[int, float], protocol: Protocol, threads: int, say: Say
) -> dict[int, tuple[list[float], str]]:
    """Rounds over all rivals until each has converged, is hopeless, or time is up.

    A rival that is far slower than the fastest keeps the few samples that it has: it cannot win, and knowing better how
    bad it is would cost as much as all others together. One run may be slow by accident, so only a hopeless factor
    counts then; after three samples even the best of them has to be `slow_factor` times slower.
    """
    samples: dict[int, list[float]] = {i: [] for i in rivals}
    reasons: dict[int, str] = {}
    fastest = min(first.values(), default=0.0)
    for i, seconds in first.items():
        if seconds > _HOPELESS * protocol.slow_factor * fastest:
            samples[i].append(seconds)
            reasons[i] = SLOW
    started = time.monotonic()
    round_number = 0
    while len(reasons) < len(rivals):
        turns = [i for i in rivals if i not in reasons]
        shift = round_number % len(turns)  # nobody always comes after the same rival
        for i in turns[shift:] + turns[:shift]:
            say(Begin(i, "timing"))
            for _ in range(protocol.discard):
                rivals[i].time_once(protocol, threads)
            seconds = rivals[i].time_once(protocol, threads)
            if round_number >= protocol.warmup:
                samples[i].append(seconds)
        round_number += 1
        best = min(float(np.median(s)) for i, s in samples.items() if s) if any(samples.values()) else 0.0
        for i in turns:
            if len(samples[i]) >= 3 and min(samples[i]) > protocol.slow_factor * best:
                reasons[i] = SLOW
            elif reason := _stop(samples[i], protocol, time.monotonic() - started):
                reasons[i] = reason
    return {i: (samples[i], reasons[i]) for i in rivals}


def _stop(samples: list[float], protocol: Protocol, elapsed: float) -> str:
    if len(samples) < protocol.min_samples:
        return ""
    if converged(samples, protocol.relative):
        return "converged"
    if len(samples) >= protocol.max_samples:
        return "sample limit"
    return "time limit" if elapsed > protocol.time_limit_s else ""


def _describe(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"[:500]


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # engines' thread pools may take seconds to wind down; nothing is left to be saved
