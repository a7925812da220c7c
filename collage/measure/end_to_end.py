"""End-to-end latency of whole networks: plans are checked against the reference, and timed interleaved in the timing
process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from collage.backends.base import Backend
from collage.compile.build import (
    Blob,
    compile_partitioned,
    compile_untouched,
    device_of_backends,
    with_called,
    write_blob,
)
from collage.compile.calls import external_call
from collage.measure.artifact import Artifact, write_arrays
from collage.measure.job import Job
from collage.measure.protocol import Protocol
from collage.measure.rounding import rounding_tolerance
from collage.measure.runner import Measurement, Runner


def prepare_plan(partitioned: Any, backends: Sequence[Backend], threads: int, folder: Path) -> Artifact:
    """Compile a partitioned network for the timing process: blobs stay in files, the rest becomes a library in
    `folder`.

    Raises
    ------
    CodegenError
        A backend, or TVM, cannot compile its part.
    """
    folder.mkdir(parents=True)
    by_name = with_called(backends)
    blobs: list[Blob] = []
    functions: dict[Any, Any] = {}
    external: dict[str, str] = {}
    called: list[Backend] = []
    for symbol, function in partitioned.functions_items():
        if symbol.name_hint == "main":
            continue
        name = (
            str(function.attrs["Codegen"])
            if isinstance(function, relax.Function) and "Codegen" in (function.attrs or {})
            else ""
        )
        if name and by_name[name].makes_blobs:
            called.append(by_name[name])
            blobs.append(write_blob(by_name[name], function, threads, folder))
            external[symbol.name_hint] = blobs[-1].symbol
        else:
            functions[symbol] = function
    main = _call_externals(partitioned["main"], external)
    module = tvm.IRModule({**functions, partitioned.get_global_var("main"): main}, attrs=partitioned.attrs)
    module = relax.transform.Normalize()(
        module
    )  # passes look functions up by hash, which types filled in later would change
    library = str(folder / "plan.so")
    compile_partitioned(module, backends, threads, called=called).export_library(library)
    codegen = (f for _, f in partitioned.functions_items() if isinstance(f, relax.Function))
    tolerance = max((*(backend.tolerance for backend in backends), *map(rounding_tolerance, codegen)), default=0.0)
    return Artifact(library, blobs=tuple(blobs), device=device_of_backends(backends), tolerance=tolerance)


def measure_plans(
    artifacts: Mapping[str, Artifact],
    inputs: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
    protocol: Protocol,
    threads: int,
    folder: Path,
    timeout_s: float = 300.0,
) -> dict[str, Measurement]:
    """Name of each plan -> its samples, in seconds; the runs of all plans are interleaved (A B C A B C)."""
    folder.mkdir(parents=True, exist_ok=True)
    job = Job(
        artifacts=tuple(artifacts.values()),
        inputs=write_arrays(tuple(inputs), folder, "input"),
        expected=write_arrays(tuple(expected), folder, "expected"),
        protocol=protocol,
        threads=threads,
        device=next((artifact.device for artifact in artifacts.values()), "cpu"),
    )
    with Runner(threads, timeout_s) as runner:
        return dict(zip(artifacts, runner.measure(job), strict=True))


def prepare_untouched(module: Any, threads: int, folder: Path, device: str = "cpu") -> Artifact:
    """TVM's own default build of the canonical module, for the timing process. Raises CodegenError when it fails."""
    folder.mkdir(parents=True)
    library = str(folder / "plan.so")
    compile_untouched(module, threads, device=device).export_library(library)
    return Artifact(library, device=device)


def _call_externals(main: Any, external: Mapping[str, str]) -> Any:
    """`main` with calls of the given functions replaced by calls of packed functions."""
    blocks = []
    for block in main.body.blocks:
        bindings = []
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Call) and getattr(value.op, "name_hint", None) in external:
                value = external_call(external[value.op.name_hint], value.args, binding.var.ty)
            bindings.append(relax.VarBinding(binding.var, value))
        blocks.append(relax.DataflowBlock(bindings))
    body = relax.SeqExpr(blocks, main.body.body)
    return relax.Function(list(main.params), body, main.ret_ty, is_pure=True).with_attrs(main.attrs)
