"""The timing process: loads artifacts, checks them, and times them interleaved (A B A B), one thing at a time.

Started by `collage.measure.runner`, as a `collage.measure.helper`. Before each stage that may
hang or crash it reports the artifact, so that the tuning process knows the cause.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any
from typing import Protocol as Interface

import numpy as np

from collage.arrays import read_array
from collage.errors import last_line
from collage.measure.check import wrong_numbers
from collage.measure.clock import clock_of, remark
from collage.measure.conditions import REPEATED_SHARE, REPEATED_SHARE_SHORT, Conditions, Repeats
from collage.measure.faults import Failure, blame_of
from collage.measure.framing import receive, send
from collage.measure.helper import channels, run_and_exit
from collage.measure.job import Begin, Done, Event, Failed, Job, Ready, Retired, Timed
from collage.measure.loaded import LoadedArtifact, WarmUps, identity
from collage.measure.protocol import Protocol
from collage.measure.statistics import converged
from collage.runtime.device_info import is_host
from collage.runtime.devices import device_of, upload
from collage.runtime.native import load_library
from collage.runtime.threads import configure_threads

SLOW = "stopped early: far slower than the fastest"
#: A single run counts when it is this many times beyond `Protocol.slow_factor`.
_HOPELESS = 8
#: A run that takes this long is not repeated for better numbers when it is hopeless anyway, in seconds.
_LONG_S = 1.0
#: Samples of so short runs are repeated more often where they were disturbed, in seconds.
_SHORT_S = 0.3e-3

Send = Callable[[Event], None]


class Runnable(Interface):
    """An artifact that is ready to run, here or elsewhere."""

    def run(self) -> list[Any]:
        """The outputs, as arrays."""

    def time_once(self, protocol: Protocol, threads: int) -> float:
        """Seconds of one run."""


class DeviceLost(Exception):
    """Nothing more can be run on the device in this process."""


def main() -> None:
    """Serve jobs until the other side closes the pipe."""
    serve(*channels())


def serve(jobs: IO[bytes], events: IO[bytes]) -> None:
    warm_ups, repeats = WarmUps(), Repeats()
    while True:
        try:
            job = receive(jobs)
        except EOFError:
            return
        try:
            run(job, warm_ups, lambda event: send(events, event), repeats)
        except DeviceLost as lost:
            send(events, Retired(str(lost)))
            return
        send(events, Done())


def run(job: Job, warm_ups: WarmUps, emit: Send, repeats: Repeats | None = None) -> None:
    """Load and check every artifact, then sample those that are right.

    `repeats` knows for how long this process has repeated samples that were disturbed; None never does so.

    Raises
    ------
    DeviceLost
        An artifact, which has been reported, left the device in a state in which no other can run.
    """
    configure_threads(job.threads)
    load_library()  # kernels run on its threads, as they will in deployment
    clock, device = clock_of(job.device), device_of(job.device)
    inputs = [upload(read_array(path), device) for path in job.inputs]
    expected = [read_array(path) for path in job.expected]
    emit(Ready())
    ready: dict[int, LoadedArtifact] = {}
    first: dict[int, float] = {}
    known: dict[tuple[str, ...], LoadedArtifact] = {}
    for i, artifact in enumerate(job.artifacts):
        emit(Begin(i, "loading"))
        try:
            warm_up, same = warm_ups.of(artifact), known.get(identity(artifact))
            loaded = LoadedArtifact(artifact, inputs, warm_up) if same is None else same.after(warm_up)
            emit(Begin(i, "running"))
            took, problem = (0.0, None) if same is not None else checked(loaded, job, expected, artifact.tolerance)
            if problem is None:
                emit(Begin(i, "timing"))
                if not is_host(job.device):  # the first run put kernels on the device, and let engines choose
                    begin = time.perf_counter()
                    loaded.run()
                    took = time.perf_counter() - begin
                hopeless = took > max(_LONG_S, _HOPELESS * job.protocol.slow_factor * min(first.values(), default=took))
                first[i] = took if hopeless else loaded.time_once(job.protocol, job.threads)
                ready[i] = known[identity(artifact)] = loaded
        except Exception as error:  # whatever a backend raises makes this one candidate fail, with the reason
            problem = Failure(f"does not run: {_describe(error)}", blame_of(error))
        if problem is not None:
            emit(Failed(i, problem))
            if lost := clock.trouble():
                raise DeviceLost(lost)
    before = clock.frequency()
    sampled, conditions = _sample_calmly(ready, first, job, emit, repeats)
    after = clock.frequency()
    for i, timed in sampled.items():
        reason = timed.reason if is_host(job.device) else remark(timed.reason, timed.samples, before, after)
        emit(Timed(i, tuple(timed.samples), reason, conditions))


def checked(
    loaded: Runnable, job: Job, expected: Sequence[np.ndarray], tolerance: float
) -> tuple[float, Failure | None]:
    """Seconds of the first run, and what is wrong with its numbers."""
    begin = time.perf_counter()
    outputs = loaded.run()
    took = time.perf_counter() - begin
    wrong = wrong_numbers(outputs, list(expected), max(job.protocol.tolerance, tolerance))
    return took, None if wrong is None else Failure(wrong)


def _sample_calmly(
    ready: Mapping[int, Runnable], first: dict[int, float], job: Job, emit: Send, repeats: Repeats | None
) -> tuple[dict[int, Sampled], Conditions]:
    """Samples in the calmest conditions that are found; of an accelerator in any, since other processes on the host do
    not disturb it.
    """

    def take() -> dict[int, Sampled]:
        return sample(ready, first, job.protocol, job.threads, emit)

    if repeats is None or not is_host(job.device) or not ready:
        return take(), Conditions()
    share = REPEATED_SHARE_SHORT if min(first.values()) <= _SHORT_S else REPEATED_SHARE
    return repeats.calmest(take, share)


@dataclass
class Sampled:
    """One artifact's samples, in seconds; why sampling stopped."""

    samples: list[float] = field(default_factory=list)
    reason: str = ""


def sample(
    artifacts: Mapping[int, Runnable], first: dict[int, float], protocol: Protocol, threads: int, emit: Send
) -> dict[int, Sampled]:
    """Rounds over all artifacts until each has converged, is hopeless, or time is up.

    An artifact that is far slower than the fastest keeps the few samples that it has: it cannot win, and a narrower
    interval would cost as much as all others together. One run may be slow by accident, so only a hopeless factor
    counts then, and one that is not long in itself is repeated first (the host may have stood still); after three
    samples even the best of them has to be `slow_factor` times slower.
    """
    sampled = {i: Sampled() for i in artifacts}
    fastest = min(first.values(), default=0.0)
    limit = _HOPELESS * protocol.slow_factor * fastest
    for i, seconds in first.items():
        best = min(seconds, artifacts[i].time_once(protocol, threads)) if limit < seconds < _LONG_S else seconds
        if best > limit:
            sampled[i] = Sampled([best], reason=SLOW)
    started = time.monotonic()
    round_number = 0
    while turns := [i for i in artifacts if not sampled[i].reason]:
        shift = round_number % len(turns)  # the order rotates between rounds
        for i in turns[shift:] + turns[:shift]:
            emit(Begin(i, "timing"))
            counts = round_number >= protocol.warmup
            seconds = artifacts[i].time_once(protocol if counts else protocol.warming, threads)
            if counts:
                sampled[i].samples.append(seconds)
        round_number += 1
        for i, reason in _done(sampled, turns, protocol, time.monotonic() - started).items():
            sampled[i].reason = reason
    return sampled


def _done(sampled: Mapping[int, Sampled], turns: Sequence[int], protocol: Protocol, elapsed: float) -> dict[int, str]:
    """Why sampling stopped, by artifact; those that go on are left out."""
    medians = {i: float(np.median(s.samples)) for i, s in sampled.items() if s.samples}
    if not medians:
        return {}
    fastest = min(medians, key=lambda i: medians[i])
    done: dict[int, str] = {}
    for i in turns:
        own = sampled[i].samples
        if len(own) >= 3 and min(own) > protocol.slow_factor * medians[fastest]:
            done[i] = SLOW
        elif reason := _stop(own, protocol, elapsed):
            done[i] = reason
    return done


def _stop(samples: list[float], protocol: Protocol, elapsed: float) -> str:
    if len(samples) < protocol.min_samples:
        return ""
    if converged(samples, protocol.relative):
        return "converged"
    if len(samples) >= protocol.max_samples:
        return "sample limit"
    return "time limit" if elapsed > protocol.time_limit_s else ""


def _describe(error: BaseException) -> str:
    kind, said = type(error).__name__, last_line(error)
    return (said if said.startswith(kind) else f"{kind}: {said}")[:500]


if __name__ == "__main__":
    run_and_exit(main)
