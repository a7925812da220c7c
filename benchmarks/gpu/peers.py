"""PyTorch as a peer: the same network with the same weights, in the ways in which PyTorch is deployed.

`torch-eager` calls kernel by kernel, `torch-graph` replays the same kernels from a CUDA graph, `torch-compile` is
TorchInductor as it comes, `torch-compile-graph` with CUDA graphs (mode "reduce-overhead"), `torch-max-autotune` with
its own search over kernels, CUDA graphs included. All may try cuDNN's algorithms, and in half precision images are
channels-last, inputs included: what PyTorch's own guide asks for.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto

#: Peers by name, the strongest first: mode of `torch.compile` (None is not compiled, "" its default), and whether a
#: CUDA graph is made here.
MODES: Mapping[str, tuple[str | None, bool]] = {
    "torch-max-autotune": ("max-autotune", False),
    "torch-compile-graph": ("reduce-overhead", False),
    "torch-graph": (None, True),
    "torch-compile": ("", False),
    "torch-eager": (None, False),
}
PEERS: tuple[str, ...] = tuple(MODES)
#: Peers that there are on a CPU.
ON_CPU = frozenset(("torch-eager", "torch-compile"))

Run = Callable[[], Sequence[Any]]


def peer(name: str, model: ModelProto, inputs: Sequence[np.ndarray], device: str, precision: str) -> Run:
    """What runs the network once, on inputs that are on the device, and gives tensors; compiled and warm.

    Parameters
    ----------
    name
        One of `PEERS`.
    model
        The network in ONNX, static shapes.
    device
        "cuda" or "cpu".
    precision
        Of float32 products: "float32", or "tf32".
    """
    import torch

    from benchmarks.onnx_torch import tensor_of, to_torch

    mode, graph = MODES[name]
    set_precision(precision)
    module = to_torch(model).to(device)
    arguments = [tensor_of(array).to(device) for array in inputs]
    ranks = {a.dim() for a in arguments if a.dtype in (torch.float16, torch.bfloat16)} & {4, 5}
    if ranks and device == "cuda":
        layout = torch.channels_last if ranks == {4} else torch.channels_last_3d
        module = module.to(memory_format=layout)
        arguments = [a.contiguous(memory_format=layout) if a.dim() in ranks else a for a in arguments]
    called: Callable[..., Any] = module.eval()
    if mode is not None:
        torch._inductor.config.freezing = True
        called = torch.compile(module, mode=mode or None, fullgraph=True, dynamic=False)

    def run() -> Sequence[Any]:
        if mode is not None:
            torch.compiler.cudagraph_mark_step_begin()
        with torch.inference_mode():
            result: Sequence[Any] = called(*arguments)
        return result

    for _ in range(3):
        run()
    return _captured(run) if graph else run


def set_precision(precision: str) -> None:
    """Products of float32 in float32, not in TF32 as cuDNN does by itself; or in TF32 everywhere."""
    import torch

    tf32 = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True


def reference(model: ModelProto, inputs: Sequence[np.ndarray], device: str) -> list[np.ndarray]:
    """The network in float64, node by node, on the weights and inputs as they are."""
    import torch

    from benchmarks.onnx_torch import tensor_of, to_torch

    module = to_torch(model, torch.float64, literal=True).to(device)
    tensors = [tensor_of(array).to(device) for array in inputs]
    wide = [t.to(torch.float64) if t.is_floating_point() else t for t in tensors]
    with torch.no_grad():
        return [t.cpu().numpy() for t in module(*wide)]


def versions() -> dict[str, str]:
    """Of PyTorch, of what it was built with, and of what it compiles with."""
    import torch

    found = {"torch": torch.__version__, "cuda (torch)": str(torch.version.cuda)}
    if torch.cuda.is_available():
        found["cudnn (torch)"] = str(torch.backends.cudnn.version())
    try:
        found["triton"] = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return found
    return found


def _captured(run: Run) -> Run:
    """The same kernels on the same memory, from a CUDA graph."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = run()

    def replay() -> Sequence[Any]:
        graph.replay()
        return outputs

    return replay
