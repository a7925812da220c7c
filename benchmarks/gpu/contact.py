"""First contact with a machine: what is there, what works, its ceilings; as JSON, which `benchmarks.gpu.agenda` reads.

    python -m benchmarks.gpu.contact --out FOLDER

Every probe is a process of its own with a limit, and its answer is written down the moment that it is there. The ones
that time the device come one after another, the rest meanwhile.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from benchmarks.gpu.isolated import Isolated
from collage.files import replacing

Facts = dict[str, Any]
_LIMIT_S = 100.0
_COPY_BYTES = 4 << 30
_EXTENT = 8192


def machine(device: str) -> Facts:
    """Tools, and what they say of themselves."""
    asked = ("name", "driver_version", "memory.total", "clocks.sm", "clocks.mem", "power.draw", "power.limit")
    gpu = _said("nvidia-smi", f"--query-gpu={','.join(asked)},clocks_event_reasons.active", "--format=csv,noheader")
    tools = {name: shutil.which(name) or "" for name in ("c++", "ninja", "nvcc", "cuobjdump", "compute-sanitizer")}
    nvcc = _said("nvcc", "--version").splitlines()[-1:]
    return {"gpu": gpu, "tools": tools, "nvcc": nvcc, "python": sys.version, "processors": os.cpu_count()}


def ceilings(device: str) -> Facts:
    """Whether streams can be captured, bytes and operations a second, and what a launch takes; by PyTorch."""
    import torch

    found: Facts = {"torch": torch.__version__}
    if device != "cuda":
        return found
    found |= {"device": torch.cuda.get_device_name(), "capability": torch.cuda.get_device_capability()}
    small = torch.zeros(1, device="cuda")
    small.add_(1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(100):
            small.add_(1)
    graph.replay()
    torch.cuda.synchronize()
    found["captures"] = float(small.item()) == 101.0
    found["replayed_kernel_s"] = _timed(torch, graph.replay, 20) / 100
    found["launched_kernel_s"] = _timed(torch, lambda: small.add_(1), 200)
    source = torch.empty(_COPY_BYTES, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    found["copy_bytes_per_s"] = 2 * _COPY_BYTES / _timed(torch, lambda: target.copy_(source), 10)
    for name in ("bfloat16", "float16", "float32"):
        a, b = (torch.randn(_EXTENT, _EXTENT, device="cuda", dtype=getattr(torch, name)) for _ in range(2))
        found[f"product_{name}_flops"] = 2 * _EXTENT**3 / _timed(torch, functools.partial(torch.matmul, a, b), 10)
    return found


def tvm_kernel(device: str, mode: str) -> Facts:
    """A kernel of TVM's own, compiled in one of its two ways and run on the device."""
    os.environ["TVM_CUDA_COMPILE_MODE"] = mode
    import numpy as np
    import tvm
    from tvm import relax

    from collage.compile.lowering import lowering_of

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((64, 128), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.tanh(x))
        builder.emit_func_output(result)
    begin = time.monotonic()
    lowering = lowering_of(device, 1)
    with lowering.scope():
        module = lowering.baseline(builder.get())
        executable = tvm.compile(module, target=lowering.target, relax_pipeline=tvm.transform.Sequential([]))
    place = tvm.cuda(0) if device == "cuda" else tvm.cpu()
    array = np.random.default_rng(0).uniform(-3, 3, (64, 128)).astype("float32")
    output = relax.VirtualMachine(executable, place)["main"](tvm.runtime.tensor(array, place)).numpy()
    return {
        "seconds": time.monotonic() - begin,
        "error": float(np.abs(output - np.tanh(array.astype("float64"))).max()),
    }


def engine(device: str, name: str) -> Facts:
    """Compile an engine with this machine's compiler and headers."""
    from collage.runtime import engines
    from collage.runtime.native_engine import NativeEngine

    begin = time.monotonic()
    found = engines.find(name)
    assert isinstance(found, NativeEngine)
    found.load()
    return {"seconds": time.monotonic() - begin}


def backends(device: str) -> Facts:
    """Name -> what each backend of the device lacks; "" when it can be used."""
    from benchmarks.gpu.numerics import of_device
    from collage import plugins

    found = {}
    for name in of_device(device):
        state = plugins.load("backends", name).availability()
        found[name] = "" if state.available else state.reason or "it is not available"
    return found


def kernels(device: str) -> Facts:
    """How many CUTLASS kernels are in the cache, as the key there has it, and how many would be compiled."""
    from benchmarks.gpu.catalogue import every_kernel
    from collage.backends.cuda.cutlass.backend import CutlassBackend
    from collage.backends.cuda.cutlass.build import Compiler
    from collage.runtime.cuda import choices

    compiler = Compiler(CutlassBackend().architecture(), choices.folder_of("cutlass"))
    every = every_kernel(compiler.arch)
    absent = len(compiler.absent(every))
    return {"cached": len(every) - absent, "absent": absent, "tools": compiler.tools()}


#: Name -> function and further arguments; those in the first group time the device.
_TIMED: Mapping[str, tuple[Callable[..., Facts], tuple[str, ...]]] = {"ceilings": (ceilings, ())}
_OTHERS: Mapping[str, tuple[Callable[..., Facts], tuple[str, ...]]] = {
    "machine": (machine, ()),
    "backends": (backends, ()),
    "kernels": (kernels, ()),
    "nvrtc": (tvm_kernel, ("nvrtc",)),
    "nvcc": (tvm_kernel, ("nvcc",)),
    "engine cublas": (engine, ("cublas",)),
    "engine cudnn": (engine, ("cudnn",)),
    "engine cutlass": (engine, ("cutlass",)),
}
_ON_CPU = ("ceilings", "machine", "backends", "nvrtc")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", type=Path, required=True, help="folder of contact.json")
    asked = parser.parse_args()
    probes = {**_TIMED, **_OTHERS}
    if asked.device == "cpu":
        probes = {name: probes[name] for name in _ON_CPU}
    found: dict[str, Facts] = {}
    end = time.monotonic() + _LIMIT_S
    with ExitStack() as stack:
        started = {}
        for name, (function, more) in probes.items():
            process = Isolated(function, asked.device, *more, torch=name in _TIMED)
            started[name] = stack.enter_context(closing(process))
        for name, process in started.items():
            try:
                found[name] = process.receive(end)
            except TimeoutError:
                found[name] = {"failed": f"no answer in {_LIMIT_S:.0f} s"}
            except RuntimeError as error:
                found[name] = {"failed": str(error)}
            process.close()
            with replacing(asked.out / "contact.json") as partial:
                partial.write_text(json.dumps(found, indent=1))
            print(f"{name}: {json.dumps(found[name])}", flush=True)


def _timed(torch: Any, run: Callable[[], Any], count: int) -> float:
    """Seconds of one run on the device, without waiting in between."""
    for _ in range(3):
        run()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(count):
        run()
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last)) / 1e3 / count


def _said(*command: str) -> str:
    """The output of a program; what is wrong where it cannot be run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        return f"{type(error).__name__}: {error}"[:200]


if __name__ == "__main__":
    main()
