"""Runs an ONNX model by TensorRT 10, on the caller's device memory and TVM's stream.

Building an engine takes seconds to minutes, so it is built once for a device and a version of TensorRT: it is looked
for in the blob, then in a folder of the user's cache, and built and kept there otherwise. A blob whose engine is for
another device or version still has its ONNX model to build one from.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from collage.errors import CompiledModelError
from collage.files import replacing
from collage.runtime.cuda.device import ordered_stream
from collage.runtime.engine import PackageEngine, Run

_MAGIC = b"CLGTRT10"
_SIZES = struct.Struct("<QQ")


@dataclass(frozen=True)
class Blob:
    """What a partition is handed over as.

    Attributes
    ----------
    inputs, outputs
        The names of the model's tensors, in the order in which the partition is called.
    model
        The ONNX model, serialised.
    engine
        What TensorRT built of it, if it was built before; empty otherwise.
    built_for
        The identity of what it was built for.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    model: bytes
    engine: bytes = b""
    built_for: str = ""

    def pack(self) -> bytes:
        """As bytes: sizes of header and engine, header (JSON), engine, model."""
        header = {name: value for name, value in asdict(self).items() if name not in ("model", "engine")}
        text = json.dumps(header, sort_keys=True).encode()
        return b"".join((_MAGIC, _SIZES.pack(len(text), len(self.engine)), text, self.engine, self.model))

    @classmethod
    def unpack(cls, data: bytes) -> Blob:
        """The inverse of `pack`.

        Raises
        ------
        CompiledModelError
            It is no such blob, or the beginning of one.
        """
        start = len(_MAGIC) + _SIZES.size
        if data[: len(_MAGIC)] != _MAGIC or len(data) < start:
            raise CompiledModelError("the blob is not one of TensorRT's engine")
        header, engine = _SIZES.unpack_from(data, len(_MAGIC))
        model = start + header + engine
        if len(data) <= model:
            raise CompiledModelError(f"the blob has {len(data)} bytes; its header and engine alone take {model}")
        facts = json.loads(data[start : start + header])
        names = {key: tuple(facts[key]) for key in ("inputs", "outputs")}
        return cls(**names, model=data[model:], engine=data[start + header : model], built_for=facts["built_for"])


def create(blob: bytes, options: Mapping[str, Any]) -> Run:
    """The function that runs `blob`; see `collage.runtime.engine.Engine.create`. Tensors are in device memory.

    It starts the work on the current stream and returns.
    """
    import tensorrt as trt
    import tvm_ffi

    parts = Blob.unpack(blob)
    logger = trt.Logger(trt.Logger.ERROR)
    plan = parts.engine
    if not plan or parts.built_for != _identity(parts.model, options, trt):
        plan = _kept(parts.model, options, trt) or _build(parts.model, options, trt, logger)
    runtime = trt.Runtime(logger)
    engine = runtime.deserialize_cuda_engine(plan)
    if engine is None:
        raise CompiledModelError("TensorRT does not take an engine that it has built: delete " + str(folder()))
    context = engine.create_execution_context()
    if context is None:
        raise CompiledModelError("TensorRT has no memory for the activations of the model")
    order = (*parts.inputs, *parts.outputs)
    bound = [0] * len(order)
    device = tvm_ffi.device("cuda", 0)
    used = (logger, runtime, engine)  # they have to live as long as the context

    def run(*tensors: Any) -> None:
        if len(tensors) != len(order):
            raise CompiledModelError(f"the partition takes {len(order)} tensors, {len(tensors)} were given")
        for i, tensor in enumerate(tensors):
            address = int(tensor.data_ptr())
            if address != bound[i]:
                context.set_tensor_address(order[i], address)
                bound[i] = address
        # On the default stream TensorRT waits for the device before and after.
        if not context.execute_async_v3(int(tvm_ffi.get_raw_stream(device)) or ordered_stream()):
            raise CompiledModelError("TensorRT could not start the model")

    run.__dict__["uses"] = used
    return run


def kept_engine(model: bytes, options: Mapping[str, Any]) -> tuple[str, bytes]:
    """The engine of a model that was built here before, behind the identity of what for; empty when there is none."""
    import tensorrt as trt

    plan = _kept(model, options, trt)
    return (_identity(model, options, trt), plan) if plan else ("", b"")


def folder() -> Path:
    """Where engines are kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "collage" / "tensorrt"


def _identity(model: bytes, options: Mapping[str, Any], trt: Any) -> str:
    """All that an engine depends on, as a digest."""
    facts = {
        "tensorrt": trt.__version__,
        "device": device_facts(),
        "tf32": bool(options.get("tf32")),
        "workspace": int(options["workspace"]),
        "model": hashlib.sha256(model).hexdigest(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def device_facts() -> list[str]:
    """The device that engines are built for: its name and what it can compute."""
    import tvm

    device = tvm.cuda(0)
    return [str(device.device_name), str(device.compute_version)]


def _kept(model: bytes, options: Mapping[str, Any], trt: Any) -> bytes | None:
    try:
        return (folder() / f"{_identity(model, options, trt)}.plan").read_bytes()
    except OSError:
        return None


def _build(model: bytes, options: Mapping[str, Any], trt: Any, logger: Any) -> bytes:
    """Build the engine of an ONNX model and keep it."""
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(model):
        reasons = "; ".join(parser.get_error(i).desc() for i in range(parser.num_errors))
        raise CompiledModelError(f"TensorRT does not take the model: {reasons}")
    config = builder.create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, int(options["workspace"]))
    (config.set_flag if options.get("tf32") else config.clear_flag)(trt.BuilderFlag.TF32)
    serialised = builder.build_serialized_network(network, config)
    if serialised is None:
        raise CompiledModelError("TensorRT could not build an engine of the model")
    plan = bytes(serialised)
    path = folder() / f"{_identity(model, options, trt)}.plan"
    with suppress(OSError), replacing(path) as partial:  # a cache that cannot be written only costs time
        partial.write_bytes(plan)
    return plan


ENGINE = PackageEngine(create, "tensorrt", "`pip install tensorrt`, of NVIDIA's package index")
