"""Clock: how a loaded artifact is timed on a kind of device.

`HostClock` reads the clock of the CPU. `DeviceClock` records events on the accelerator's stream, because kernels run
there while the host is already elsewhere. The host's time for a launch must not count as a kernel's. So before a run
enough work is queued that the host has issued all launches of the run before the first of them begins: the same writes
that empty the last-level cache. A whole network is timed without that, as it will run.

A candidate that may be captured is timed as replays of a graph, as its kernels run in a plan. There other kernels come
before it, its code has run before, and its weights have not: so the graph has two runs, of which the first is on a copy
of the weights, and the time of a graph with that one alone is subtracted. What an event, the launch of a graph and its
first kernel take, 2 µs together, is in both.

A GPU lowers its clock when it is hot, or idle, or shares its power budget, and the same kernel then takes longer. NVML
reports the frequency (package nvidia-ml-py). Without it only the spread of the samples is judged.
"""

from __future__ import annotations

import logging
import math
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any
from typing import Protocol as Interface

from collage.measure import device_events, instrument
from collage.measure.device_state import sm_frequency
from collage.measure.protocol import DeviceProtocol, Protocol
from collage.measure.statistics import Summary
from collage.runtime.device_info import is_host

if TYPE_CHECKING:
    from collage.measure.instrument import Span
    from collage.measure.loaded import LoadedArtifact

#: So many times longer than the host takes for its launches is the queue before them.
_AHEAD = 1.5
#: A first run compiles, and takes seconds: nothing is queued for that long.
_MOST_WRITES = 400
#: How often what events and an empty graph take is measured, and the least that is left when it is subtracted.
_EMPTY_SAMPLES, _LEAST_S = 9, 1e-8
#: A clock that changes by more, or samples that spread by more, make a measurement unstable.
STEADY_CLOCK, STEADY_SAMPLES = 0.03, 0.05
UNSTABLE = "unstable"


class Watched(Interface):
    """What is run call by call: a virtual machine with the stopwatch, and what the host takes for its launches."""

    watched: Any
    host_seconds: float

    def call_watched(self) -> None:
        """Run it once."""


class Clock(ABC):
    """Takes the time of one run."""

    @abstractmethod
    def time_once(self, loaded: LoadedArtifact, protocol: Protocol, threads: int) -> float:
        """Seconds of one run, of its kernels."""

    @abstractmethod
    def time_call(self, call: Callable[[], Any]) -> float:
        """Seconds from the beginning of a call to the end of what it does."""

    @abstractmethod
    def watch_once(self, loaded: Watched) -> list[Span]:
        """Run once with a stopwatch around every call that the virtual machine makes."""

    def trouble(self) -> str:
        """Why nothing more can be run in this process; "" when it can."""
        return ""

    def frequency(self) -> float | None:
        """Clock frequency of the device now, in MHz; None where it is not known."""
        return None


class HostClock(Clock):
    """For the CPU."""

    def time_once(self, loaded: LoadedArtifact, protocol: Protocol, threads: int) -> float:
        if loaded.fed:
            loaded.feed()
        elif protocol.weights == "cold":
            instrument.evict(protocol.evict_bytes // threads, threads)
            if loaded.warm_up is not None:
                loaded.warm_up.call()
            instrument.touch(loaded.inputs)
        found = instrument.spans(loaded.vm, loaded.call)
        return found[-1].end - found[0].begin if found else 0.0

    def time_call(self, call: Callable[[], Any]) -> float:
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin

    def watch_once(self, loaded: Watched) -> list[Span]:
        return instrument.spans(loaded.watched, loaded.call_watched)


class DeviceClock(Clock):
    """For a CUDA device, by events."""

    def __init__(self) -> None:
        device_events.load_library()
        self._write_s = 0.0
        self._empty: dict[bool, float] = {}

    def time_once(self, loaded: LoadedArtifact, protocol: Protocol, threads: int) -> float:
        assert isinstance(protocol, DeviceProtocol)
        device_events.synchronize()
        device_events.reset()
        if loaded.runs_per_sample == 0:
            self._prepare(loaded, protocol)
        sample = self._cold if protocol.weights == "cold" else self._hot
        return sample(loaded, protocol)

    def time_call(self, call: Callable[[], Any]) -> float:
        device_events.synchronize()
        device_events.reset()
        first = device_events.record()
        call()
        last = device_events.record()
        device_events.synchronize()
        return device_events.elapsed(first, last)

    def watch_once(self, loaded: Watched) -> list[Span]:
        overhead = self._overhead(DeviceProtocol(), replayed=False)
        device_events.synchronize()
        device_events.reset()
        self._queue(DeviceProtocol().evict_bytes, loaded.host_seconds)
        begin = time.perf_counter()
        return device_events.spans(loaded.watched, lambda: self._issue(loaded, begin), overhead)

    def trouble(self) -> str:
        return device_events.trouble()

    def frequency(self) -> float | None:
        return sm_frequency()

    def _issue(self, loaded: Watched, begin: float) -> None:
        loaded.call_watched()
        took = time.perf_counter() - begin
        loaded.host_seconds = min(loaded.host_seconds or took, took)

    def _prepare(self, loaded: LoadedArtifact, protocol: DeviceProtocol) -> None:
        """How long the host takes for the launches of a run, and how many runs make a sample."""
        loaded.runs_per_sample = 1
        host = []
        for _ in range(3):
            begin = time.perf_counter()
            if loaded.fed:
                loaded.feed()
            loaded.call()
            host.append(time.perf_counter() - begin)
            device_events.synchronize()
        loaded.host_seconds = statistics.median(host)
        self._capture(loaded, protocol)
        once = self._cold(loaded, protocol) if protocol.weights == "cold" else self._hot(loaded, protocol)
        wanted = math.ceil(protocol.batch_s / once) if once > 0 else protocol.batch_limit
        loaded.runs_per_sample = min(max(1, wanted), protocol.batch_limit)
        if loaded.replay is not None and protocol.weights != "cold":
            loaded.replay = device_events.Replay(lambda: [loaded.call() for _ in range(loaded.runs_per_sample)])

    @staticmethod
    def _capture(loaded: LoadedArtifact, protocol: DeviceProtocol) -> None:
        """Make its graphs: a run, or for cold weights a run after one on other weights, and that one alone."""
        if not loaded.capturable or loaded.fed:
            return
        try:
            if protocol.weights != "cold":
                loaded.replay = device_events.Replay(loaded.call)
                return
            twin = loaded.twin()
            twin.call()  # allocates
            device_events.synchronize()
            loaded.lead = device_events.Replay(twin.call)
            loaded.replay = device_events.Replay(lambda: (twin.call(), loaded.call()))
        except RuntimeError as error:
            logging.getLogger(__name__).warning("a candidate cannot be captured, and is launched instead: %s", error)
            loaded.replay = loaded.lead = None

    def _overhead(self, protocol: DeviceProtocol, replayed: bool) -> float:
        """Seconds between two events with nothing in between: an empty graph, or not even that."""
        if replayed not in self._empty:
            empty = device_events.Replay(lambda: None) if replayed else None
            found = []
            for _ in range(_EMPTY_SAMPLES):
                device_events.reset()
                self._queue(protocol.evict_bytes, 1e-5)
                first = device_events.record()
                if empty is not None:
                    empty.launch()
                last = device_events.record()
                device_events.synchronize()
                found.append(device_events.elapsed(first, last))
            self._empty[replayed] = statistics.median(found)
        return self._empty[replayed]

    def _cold(self, loaded: LoadedArtifact, protocol: DeviceProtocol) -> float:
        if loaded.replay is None:
            before = self._overhead(protocol, replayed=False)
            return max(self._after_writes(loaded, protocol, loaded.call) - before, _LEAST_S)
        before = self._after_writes(loaded, protocol, loaded.lead.launch)
        return max(self._after_writes(loaded, protocol, loaded.replay.launch) - before, _LEAST_S)

    def _after_writes(self, loaded: LoadedArtifact, protocol: DeviceProtocol, start: Callable[[], Any]) -> float:
        """Mean seconds of so many runs as make a sample, each with an empty cache but for the inputs."""
        device_events.reset()
        pairs = []
        for _ in range(loaded.runs_per_sample):
            self._queue(protocol.evict_bytes, loaded.host_seconds)
            if loaded.fed:
                loaded.feed()
            else:
                for tensor, pristine in zip(loaded.inputs, loaded.pristine, strict=True):
                    device_events.restore(tensor, pristine)
            first = device_events.record()
            start()
            pairs.append((first, device_events.record()))
        device_events.synchronize()
        return statistics.fmean(device_events.elapsed(first, last) for first, last in pairs)

    def _hot(self, loaded: LoadedArtifact, protocol: DeviceProtocol) -> float:
        overhead = self._overhead(protocol, loaded.replay is not None)
        device_events.reset()
        self._queue(protocol.evict_bytes, loaded.host_seconds * (loaded.runs_per_sample + 1))
        if loaded.replay is not None:
            loaded.replay.launch()
        else:
            loaded.call()
        first = device_events.record()
        if loaded.replay is not None:
            loaded.replay.launch()
        else:
            for _ in range(loaded.runs_per_sample):
                loaded.call()
        last = device_events.record()
        device_events.synchronize()
        return max(device_events.elapsed(first, last) - overhead, _LEAST_S) / loaded.runs_per_sample

    def _queue(self, bytes_written: int, host_seconds: float) -> None:
        """Writes that take longer than the host takes for what follows; one at least."""
        if self._write_s == 0.0:
            self._write_s = self._time_write(bytes_written)
        for _ in range(min(_MOST_WRITES, max(1, math.ceil(_AHEAD * host_seconds / self._write_s)))):
            device_events.evict(bytes_written)

    @staticmethod
    def _time_write(bytes_written: int) -> float:
        device_events.evict(bytes_written)  # allocates
        first = device_events.record()
        device_events.evict(bytes_written)
        last = device_events.record()
        device_events.synchronize()
        return max(device_events.elapsed(first, last), 1e-6)


@cache
def clock_of(device: str) -> Clock:
    """The clock of a kind of device, one for all artifacts."""
    return HostClock() if is_host(device) else DeviceClock()


def remark(reason: str, samples: Sequence[float], before: float | None, after: float | None) -> str:
    """Why sampling stopped, with the clock frequency meanwhile, and a warning where the measurement is uncertain.

    Parameters
    ----------
    before, after
        MHz; None where they are not known.
    """
    warnings, parts = [], [reason]
    if before and after:
        parts.append(f"SM clock {before:.0f} MHz" if before == after else f"SM clock {before:.0f} to {after:.0f} MHz")
        if abs(after - before) > STEADY_CLOCK * before:
            warnings.append("the clock changed")
    if len(samples) > 1 and Summary.of(samples).relative_spread > STEADY_SAMPLES:
        warnings.append(f"the samples spread by {Summary.of(samples).relative_spread:.0%}")
    if warnings:
        parts.append(f"{UNSTABLE}: {' and '.join(warnings)}")
    return "; ".join(part for part in parts if part)
