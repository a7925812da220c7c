"""A CUDA device that is the CPU, behind the one function that turns the name of a device into a device.

Real are: partitioning, code generation by engines, CUDA graphs as a rewriting of the module, export, the virtual
machine, the timing job, records and plans. Stood in for are the CUDA runtime's events (`cuda_stand_in/cudart.c`), the
schedule rules (loops stay plain), and the two builtins of TVM's CUDA runtime, which here launch call by call.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm.relax.dpl import is_op, wildcard

from collage.backends.base import Availability, Backend, Style
from collage.backends.cuda import lower, native, target
from collage.backends.library.composite import Composite, Operands
from collage.deployed.contestant import Server
from collage.deployed.messages import Answer, Load, Request
from collage.measure import clock, device_events
from collage.measure.artifact import Artifact, compile_artifact
from collage.measure.builder import Built
from collage.measure.faults import Failure
from collage.measure.job import Failed, Job, Timed
from collage.measure.protocol import candidate_protocol, transition_protocol
from collage.measure.runner import Measurement
from collage.measure.worker import WarmUps, run
from collage.rules.trees import library_rule
from collage.runtime import blob, devices
from collage.runtime.cuda import device as cuda_device
from tests.timing_process import NoProcess

_SOURCE = Path(__file__).parent / "cuda_stand_in" / "cudart.c"
_QUICK: dict[str, Any] = {
    "warmup": 1,
    "min_samples": 7,
    "max_samples": 7,
    "time_limit_s": 0.0,
    "batch_limit": 2,
}
DEVICE = cuda_device.CudaDevice("Stand-in", "9.0", 132, 50 << 20, 80 << 30)


class Products(Backend):
    """A library backend whose partitions, products, become blobs."""

    name: ClassVar[str] = "products"
    style: ClassVar[Style] = "library"
    device: ClassVar[str] = "cuda"
    priority: ClassVar[int] = 12
    engine: ClassVar[str] = "cuda_emulation:create"

    def availability(self) -> Availability:
        return Availability(True)

    def version(self) -> str:
        return "1"

    def rule(self) -> Any:
        product = is_op("relax.matmul")(wildcard(), wildcard())
        return library_rule([("products.product", product, None)])

    def engine_blob(self, function: Any) -> bytes:
        composite = Composite.of(function)
        operands = Operands(composite)
        (product,) = composite.calls
        return operands.blob({"op": "product", "operands": [operands.reference(value) for value in product.args]})


def create(packed: bytes, _options: Mapping[str, Any]) -> Callable[..., None]:
    """The engine of `Products`: operands are arguments or weights of the blob, and the result is the last argument."""
    header, weights = blob.unpack(packed)

    def run_product(*tensors: Any) -> None:
        arguments = [np.from_dlpack(tensor) for tensor in tensors]
        lhs, rhs = (arguments[at["arg"]] if "arg" in at else weights[at["tensor"]] for at in header["operands"])
        arguments[-1][...] = lhs @ rhs

    return run_product


@dataclass
class Emulation:
    """What the stand-ins have seen, and how they are told to fail."""

    library: ctypes.CDLL
    graphs: list[int] = field(default_factory=list)

    @contextmanager
    def failing(self, code: int) -> Iterator[None]:
        """Every call of the CUDA runtime answers with this error."""
        self.library.stand_in_fails(code)
        try:
            yield
        finally:
            self.library.stand_in_fails(0)

    @property
    def bytes_written(self) -> int:
        return int(self.library.stand_in_written())


@cache
def stand_in() -> ctypes.CDLL:
    """The stand-in for the CUDA runtime, compiled once: `device_clock.cc` opens one runtime per process."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "libcudart_stand_in.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(path), str(_SOURCE)], check=True)
        library = ctypes.CDLL(str(path))
        library.stand_in_written.restype = library.stand_in_launches.restype = ctypes.c_longlong
        library.stand_in_kernel.argtypes = library.stand_in_launch_takes.argtypes = [ctypes.c_double]
        patch.setattr(device_events, "runtime_library", lambda: str(path))
        device_events.load_library()
    return library


@pytest.fixture(scope="module")
def emulation() -> Iterator[Emulation]:
    """Everything that asks for "cuda" gets the CPU."""
    with pytest.MonkeyPatch.context() as patch:
        yield from _emulated(Emulation(stand_in()), patch)


def _emulated(state: Emulation, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulation]:
    monkeypatch.setattr(devices, "_cuda", tvm.cpu)
    for module in (devices, native, cuda_device, target):
        monkeypatch.setattr(module, "cuda_exists", lambda: True)
    monkeypatch.setattr(native, "_compiler", lambda: Availability(True))
    monkeypatch.setattr(tvm.runtime, "enabled", lambda _: True)
    monkeypatch.setattr(cuda_device, "cuda_device", lambda: DEVICE)
    monkeypatch.setattr(cuda_device, "cuda_versions", lambda: "CUDA 13.0, driver 13.0")
    monkeypatch.setattr(target, "cuda_target", lambda _arch=None: tvm.target.Target("llvm"))
    monkeypatch.setattr(lower, "schedule_kernels", lambda mod, _target, _records: mod)
    monkeypatch.setattr(lower, "load_intrinsics", lambda: None)  # only the schedule rules need them; they take 10 s
    for place in ("collage.measure.workers", "collage.testing.measuring"):
        monkeypatch.setattr(f"{place}.Runner", InProcess)
        monkeypatch.setattr(f"{place}.build_all", _build_here)
    monkeypatch.setattr("collage.measure.transitions.Runner", InProcess)
    monkeypatch.setattr("collage.measure.probe.build_all", _build_here)
    quick = replace(transition_protocol("cuda"), **_QUICK)
    monkeypatch.setattr("collage.measure.transitions.transition_protocol", lambda device: quick)
    for place in ("estimators.measured", "collage.measure.protocol"):
        monkeypatch.setattr(
            f"{place}.candidate_protocol", lambda device, size=0: replace(candidate_protocol(device, size), **_QUICK)
        )
    monkeypatch.setattr("collage.deployed.entry.Contestant", ContestantHere)
    # Latencies here mean nothing: nobody is left out for them.
    monkeypatch.setattr("collage.confirm.starters.is_hopeless", lambda seconds, least: False)
    monkeypatch.setattr("collage.confirm.contest._WATCHED", 1e9)
    clock.clock_of.cache_clear()
    with _builtins(state):
        yield state
    clock.clock_of.cache_clear()


class ContestantHere:
    """A contestant's process's work, done here."""

    number = os.getpid()

    def __init__(self) -> None:
        self.loaded, self.server = False, Server()

    def begin(self, request: Load) -> None:
        """It loads when it is waited for."""

    def load(self, request: Load, timeout_s: float) -> Answer:
        self.loaded = True
        return self.ask(request, timeout_s)

    def ask(self, request: Request, timeout_s: float) -> Answer:
        return self.server.answer(request)

    def close(self) -> None:
        pass


class InProcess(NoProcess):
    """The timing process's work, done here."""

    def __init__(self, threads: int, timeout_s: float = 60.0) -> None:
        self.warm_ups = WarmUps()

    def measure(self, job: Job) -> list[Measurement]:
        # On one memory, inputs that were put on another device than the rivals' would go unnoticed.
        assert {artifact.device for artifact in job.artifacts} == {job.device}
        found: dict[int, Measurement] = {}

        def say(event: Any) -> None:
            if isinstance(event, Failed):
                found[event.artifact] = Measurement.failed(event.failure)
            elif isinstance(event, Timed):
                found[event.artifact] = Measurement(event.samples, event.reason)

        run(job, self.warm_ups, say)
        return [found[i] for i in range(len(job.artifacts))]


def _build_here(preparations: Sequence[Any], jobs: int, timeout_s: float = 60.0) -> list[Built]:
    return _run_here(compile_artifact, preparations, jobs, timeout_s)


def _run_here(
    compile_one: Callable[[Any], Artifact], items: Sequence[Any], _jobs: int, _timeout_s: float
) -> list[Built]:
    built: list[Built] = []
    for item in items:
        try:
            built.append(compile_one(item))
        except Exception as error:
            built.append(Failure(str(error)))
    return built


@contextmanager
def _builtins(state: Emulation) -> Iterator[None]:
    """TVM's builtins for CUDA graphs: allocations are made once, and a graph is launched call by call."""
    invoke = tvm_ffi.get_global_func("vm.builtin.invoke_closure")
    allocations: dict[tuple[Any, int], tuple[Any, Any]] = {}

    def get_cached_alloc(machine: Any, function: Any, index: int) -> Any:
        # A machine may be where another one was: then the function is another one, too.
        key = (getattr(machine, "value", machine), index)
        if key not in allocations or not allocations[key][0].same_as(function):
            allocations[key] = function, invoke(machine, function)
        return allocations[key][1]

    def run_or_capture(machine: Any, function: Any, arguments: Any, index: int, *_shape: Any) -> Any:
        state.graphs.append(index)
        return invoke(machine, function, *arguments)

    names = {"get_cached_alloc": get_cached_alloc, "run_or_capture": run_or_capture}
    for name, function in names.items():
        tvm_ffi.register_global_func(f"vm.builtin.cuda_graph.{name}", function, override=True)
    yield
    for name in names:
        tvm_ffi.registry.remove_global_func(f"vm.builtin.cuda_graph.{name}")
