"""Time on an accelerator: what is queued before a sample, and what happens when the device is in trouble."""

from __future__ import annotations

import gc
import os
import time
import weakref
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import IO, Any

import numpy as np
import pytest
import tvm
from cuda_emulation import DEVICE, Emulation, emulation

from benchmarks.gpu.contestant import _CudaClock, _turn
from collage.confirm.confirmation import Confirmation, Contestant
from collage.confirm.launches import launch_bound, launch_notes, without_launches
from collage.cost.cost import Cost
from collage.measure import device_events
from collage.measure.artifact import Artifact
from collage.measure.clock import UNSTABLE, DeviceClock, remark
from collage.measure.faults import Failure
from collage.measure.framing import receive, send
from collage.measure.job import Begin, Done, Failed, Job, Ready, Retired, Timed
from collage.measure.protocol import DeviceProtocol
from collage.measure.runner import Runner
from collage.measure.worker import DeviceLost, WarmUps, run
from collage.runtime.cuda import device as cuda_device
from collage.runtime.device_info import describe_device

__all__ = ["emulation"]


class Loaded:
    """What the clock needs of a loaded artifact; counts its runs, and spoils its input like a kernel that works in
    place.
    """

    def __init__(self) -> None:
        self.inputs = [tvm.runtime.tensor(np.ones(4, "float32"))]
        self.pristine = [tvm.runtime.tensor(np.ones(4, "float32"))]
        self.runs_per_sample = 0
        self.host_seconds = 0.0
        self.fed = self.capturable = False
        self.replay: Any = None
        self.lead: Any = None
        self.runs = 0
        self.seen: list[float] = []

    def twin(self) -> Loaded:
        return self

    def call(self) -> None:
        self.runs += 1
        array = np.from_dlpack(self.inputs[0])
        self.seen.append(float(array.sum()))
        array += 1


def sampled(emulation: Emulation, protocol: DeviceProtocol) -> tuple[Loaded, float, int, int]:
    """A prepared artifact, one more sample of it, and how many runs and bytes that sample took."""
    loaded, clock = Loaded(), DeviceClock()
    clock.time_once(loaded, protocol, 1)  # type: ignore[arg-type]
    runs, written = loaded.runs, emulation.bytes_written
    seconds = clock.time_once(loaded, protocol, 1)  # type: ignore[arg-type]
    return loaded, seconds, loaded.runs - runs, emulation.bytes_written - written


def test_every_cold_run_finds_an_empty_cache_and_fresh_inputs(emulation: Emulation) -> None:
    protocol = DeviceProtocol(batch_limit=5, batch_s=1.0)
    loaded, seconds, runs, written = sampled(emulation, protocol)
    assert runs == loaded.runs_per_sample == 5 and seconds > 0
    assert written >= 5 * protocol.evict_bytes
    assert loaded.seen[-5:] == [4.0] * 5, "what the run before wrote into its input is gone"


def test_hot_runs_follow_each_other_behind_one_queue(emulation: Emulation) -> None:
    protocol = DeviceProtocol(weights="hot", batch_limit=5, batch_s=1.0)
    loaded, _, runs, written = sampled(emulation, protocol)
    assert runs == 1 + loaded.runs_per_sample == 6, "one that does not count, and five that do"
    assert written >= protocol.evict_bytes and loaded.seen[-1] > loaded.seen[-5]


class Kernels(Loaded):
    """So many kernels of some milliseconds each, on the clock of the stand-in."""

    def __init__(self, emulation: Emulation, count: int, took: float, capturable: bool = True) -> None:
        super().__init__()
        self.capturable = capturable
        self.emulation = emulation
        self.kernel = lambda: [emulation.library.stand_in_kernel(took) for _ in range(count)]

    def call(self) -> None:
        super().call()
        self.kernel()


@pytest.mark.parametrize("weights", ["cold", "hot"])
def test_what_may_be_captured_is_timed_as_replays_without_launches(emulation: Emulation, weights: str) -> None:
    """Four kernels of 100 ms, of which each would cost the host 300 ms to launch."""
    protocol = DeviceProtocol(weights=weights, batch_limit=3, batch_s=0.5)
    emulation.library.stand_in_launch_takes(300.0)
    try:
        launches, clock = emulation.library.stand_in_launches(), DeviceClock()
        loaded = Kernels(emulation, 4, 100.0)
        assert clock.time_once(loaded, protocol, 1) == pytest.approx(0.4, rel=0.05)
        runs = loaded.runs
        assert clock.time_once(loaded, protocol, 1) == pytest.approx(0.4, rel=0.05) and loaded.runs == runs
        assert emulation.library.stand_in_launches() > launches
        launched = Kernels(emulation, 4, 100.0, capturable=False)
        assert clock.time_once(launched, protocol, 1) == pytest.approx(1.6, rel=0.05)
    finally:
        emulation.library.stand_in_launch_takes(0.0)


def test_what_the_first_kernel_of_a_graph_takes_more_is_nobodys(emulation: Emulation) -> None:
    """Kernels of 100 ms in graphs whose launch takes the device 300 ms: in a plan there is one launch for all."""
    emulation.library.stand_in_launch_takes(300.0)
    try:
        loaded, clock = Kernels(emulation, 1, 100.0), DeviceClock()
        protocol = DeviceProtocol(batch_limit=3, batch_s=0.5)
        clock._empty[True] = 0.0  # a graph without kernels is not even launched
        assert clock.time_once(loaded, protocol, 1) == pytest.approx(0.1, rel=0.05)  # type: ignore[arg-type]
        assert loaded.lead is not None and loaded.replay is not None
    finally:
        emulation.library.stand_in_launch_takes(0.0)


class Weighted(Kernels):
    """Has a twin with weights of its own."""

    other: Any = None

    def twin(self) -> Loaded:
        made = Kernels(self.emulation, 1, 50.0)
        self.other = weakref.ref(made)
        return made


def test_weights_that_a_graph_reads_live_as_long_as_the_graph(emulation: Emulation) -> None:
    loaded = Weighted(emulation, 1, 50.0)
    DeviceClock().time_once(loaded, DeviceProtocol(batch_limit=2), 1)  # type: ignore[arg-type]
    gc.collect()
    assert loaded.other() is not None, "freed memory is read by what comes next"
    loaded.replay = loaded.lead = None
    gc.collect()
    assert loaded.other() is None


def test_what_cannot_be_captured_after_all_is_launched(emulation: Emulation, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_calls: Any) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    clock = DeviceClock()
    monkeypatch.setattr(device_events, "Replay", refuse)
    loaded = Kernels(emulation, 1, 50.0)
    clock._empty[False] = 0.0
    assert clock.time_once(loaded, DeviceProtocol(), 1) == pytest.approx(0.05, rel=0.2)  # type: ignore[arg-type]


def test_a_capture_that_fails_ends_and_the_next_one_works(emulation: Emulation) -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        device_events.Replay(fail)
    device_events.Replay(lambda: None).launch()


def test_one_long_run_is_a_sample(emulation: Emulation) -> None:
    loaded, _, runs, _ = sampled(emulation, DeviceProtocol(batch_s=0.0))
    assert loaded.runs_per_sample == runs == 1


def test_whole_calls_are_timed_as_they_run(emulation: Emulation) -> None:
    before = emulation.bytes_written
    calls: list[int] = []
    seconds = DeviceClock().time_call(lambda: calls.append(1))
    assert calls == [1] and emulation.bytes_written == before and seconds > 0


def test_the_races_of_benchmarks_read_the_same_events(emulation: Emulation) -> None:
    timed = _turn(lambda: time.sleep(0.002), _CudaClock(), 4)
    assert len(timed.call) == len(timed.device) == 4
    assert all(0.002 <= device <= call for call, device in zip(timed.call, timed.device, strict=True))
    assert timed.pipelined >= 0.002


def test_a_failed_call_says_which_and_why(emulation: Emulation) -> None:
    device_events.reset()
    with emulation.failing(700), pytest.raises(RuntimeError, match=r"cudaEvent\w+ failed: an illegal memory access"):
        device_events.record()
    assert device_events.trouble() == ""


def test_a_broken_device_ends_the_job_after_the_culprit_is_named(emulation: Emulation, tmp_path: Path) -> None:
    missing = Artifact(str(tmp_path / "missing.so"), device="cuda")
    job = Job((missing, missing), (), (), DeviceProtocol(), 1, "cuda")
    said: list[Any] = []
    with emulation.failing(700), pytest.raises(DeviceLost, match="illegal memory access"):
        run(job, WarmUps(), said.append)
    assert [type(event) for event in said] == [Ready, Begin, Failed] and said[-1].artifact == 0


def answer(jobs: IO[bytes], events: IO[bytes]) -> None:
    """What a timing process says whose device breaks under the rival called "bad"."""
    with jobs, events:
        job = receive(jobs)
        send(events, Ready())
        send(events, Begin(0, "running"))
        if job.artifacts[0].library == "bad":
            send(events, Failed(0, Failure("does not run: an illegal memory access")))
            send(events, Retired("an illegal memory access"))
            return
        for i in range(len(job.artifacts)):
            send(events, Timed(i, (1.0,), "converged"))
        send(events, Done())


class ScriptedProcess:
    """A timing process that is a thread, at the other ends of two pipes."""

    def __init__(self) -> None:
        (jobs, stdin), (stdout, events) = os.pipe(), os.pipe()
        self.stdin, self.stdout = os.fdopen(stdin, "wb", 0), os.fdopen(stdout, "rb", 0)
        self._thread = Thread(target=answer, args=(os.fdopen(jobs, "rb", 0), os.fdopen(events, "wb", 0)), daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def send(self, message: Any) -> None:
        send(self.stdin, message)

    def receive(self, _seconds: float) -> Any:
        return receive(self.stdout)

    def close(self) -> None:
        self.stdin.close()
        self._thread.join()
        self.stdout.close()


class ScriptedRunner(Runner):
    """Counts the processes that it starts."""

    started = 0

    def start(self) -> Any:
        if self._process is None or not self._process.alive:
            self.started += 1
            self._process = ScriptedProcess()  # type: ignore[assignment]
        return self._process


def test_the_rivals_of_one_that_breaks_the_device_are_timed_in_another_process() -> None:
    rivals = (Artifact("bad", device="cuda"), Artifact("good", device="cuda"), Artifact("good", device="cuda"))
    with ScriptedRunner(1, timeout_s=60) as runner:
        bad, *good = runner.measure(Job(rivals, (), (), DeviceProtocol(), 1, "cuda"))
    assert runner.started == 2
    assert "illegal memory access" in bad.reason and not bad.valid
    assert [m.samples for m in good] == [(1.0,), (1.0,)]


def test_a_clock_that_changes_makes_a_measurement_unstable() -> None:
    steady = [1.0, 1.001, 0.999, 1.0, 1.0, 1.0, 1.0]
    assert remark("converged", steady, 1980.0, 1980.0) == "converged; SM clock 1980 MHz"
    assert remark("converged", steady, None, None) == "converged"
    assert UNSTABLE not in remark("converged", steady, 1980.0, 1950.0)
    changed = remark("converged", steady, 1980.0, 1410.0)
    assert UNSTABLE in changed and "1980 to 1410" in changed
    assert UNSTABLE in remark("sample limit", [1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0], None, None)


def test_the_fingerprint_of_a_device(emulation: Emulation, monkeypatch: pytest.MonkeyPatch) -> None:
    def fingerprint(**changes: Any) -> str:
        monkeypatch.setattr(cuda_device, "cuda_device", lambda: replace(DEVICE, **changes))
        return describe_device("cuda").fingerprint

    assert fingerprint() == fingerprint(memory_bytes=1) and fingerprint().startswith("cuda-")
    changes: list[dict[str, Any]] = [{"l2_bytes": 1}, {"multiprocessors": 1}, {"compute": "8.0"}, {"name": "Other"}]
    assert len({fingerprint(), *(fingerprint(**change) for change in changes)}) == 5
    assert describe_device().kind == "cpu" and describe_device().fingerprint.startswith("cpu-")


def test_parts_that_were_launched_one_by_one_add_up_to_the_whole_of_a_graph() -> None:
    assert without_launches([5e-6, 3e-6, 4e-6], 9e-6) == pytest.approx([4e-6, 2e-6, 3e-6])
    assert without_launches([5e-6, 3e-6], 9e-6) == (5e-6, 3e-6), "the host is too slow: the device waits in between"
    assert without_launches([9e-6, 1e-6], 2e-6) == pytest.approx([5e-6, 1e-7]), "nothing takes no time"
    assert without_launches([], 9e-6) == ()


def test_a_plan_says_when_the_host_is_too_slow() -> None:
    def confirmed(latency: float, launch: tuple[float, ...]) -> Confirmation:
        return Confirmation("collage", (Contestant("collage", Cost(latency), None, (1e-5, 3e-5), launch),))

    bound = confirmed(1e-4, (2e-5, 2e-5))
    assert launch_bound(bound) == (0,)
    (note,) = launch_notes(bound)
    assert note.startswith("launch-bound: its kernels take 0.040 of 0.100 ms; 1 of 2")
    assert launch_notes(confirmed(4.1e-5, (2e-5, 2e-5))) == (), "the device is busy: a graph, or a queue, hides it"
    assert launch_notes(confirmed(1e-4, ())) == () and launch_notes(None) == ()
