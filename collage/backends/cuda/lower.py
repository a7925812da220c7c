"""From a partitioned Relax module to the virtual machine's form on a CUDA device, with TVM: one kernel per native
partition.

The order is that of TVM's own pipeline (`tvm.relax.backend.cuda.pipeline`) but for operator fusion, which is left out,
as on the CPU: a partition *is* what is fused (`collage.backends.tvm.partition`). Every PrimFunc has to be bound to
threads: by its tuning record, or by the schedule rules of DLight (`tvm.s_tir.dlight`), of which the last takes
everything.
"""

from __future__ import annotations

import functools
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.backend.cuda import pipeline as cuda_pipeline
from tvm.s_tir import dlight

from collage.backends.cuda.exact_math import all_exact
from collage.backends.cuda.intrinsics import load_intrinsics
from collage.backends.tvm.legalize import LEGALIZATIONS
from collage.backends.tvm.partition import fuse_partitions, is_scheduled
from collage.backends.tvm.tuning_records import TuningRecords
from collage.errors import CodegenError

#: Those of our own legalisations that are about right numbers; the others make loops for a CPU's vectors.
_EXACT = {name: LEGALIZATIONS[name] for name in ("relax.max", "relax.min", "relax.power")}
#: Whether the virtual machine's CUDA graphs are made (`relax.transform.RewriteCUDAGraph`).
USE_GRAPH = "relax.backend.use_cuda_graph"


def lower(
    mod: Any, target: tvm.target.Target, tuning_records: str | None = None, scheduled: bool = True, graph: bool = False
) -> Any:
    """Everything before code generation.

    Parameters
    ----------
    mod
        `main`, and the private `Primitive` functions that it calls; calls of external symbols stay as they are.
    tuning_records
        Folder of a MetaSchedule database; kernels that have a record there are scheduled by it.
    scheduled
        False leaves kernels without threads; only for looking at them, a device cannot run them.
    graph
        Capture runs of calls on memory of the module's own into CUDA graphs.

    Returns
    -------
    a module for `tvm.compile(..., relax_pipeline=tvm.transform.Sequential([]))`.

    Raises
    ------
    CodegenError
        TVM cannot make one kernel of a partition, or cannot schedule it.
    """
    with target:
        kernels = scheduled_kernels(mod, target, tuning_records) if scheduled else one_kernel_per_partition(mod, target)
        return finish(kernels, target, graph)


def baseline_module(mod: Any, target: tvm.target.Target, graph: bool = True) -> Any:
    """TVM's own default build of a canonical module, to be compared with: fused and scheduled by TVM."""
    load_intrinsics()
    with target, tvm.transform.PassContext(config={USE_GRAPH: graph}):
        return all_exact(relax.get_default_pipeline(target)(mod))


def one_kernel_per_partition(mod: Any, target: tvm.target.Target) -> Any:
    """The module with every `Primitive` Relax function replaced by one unscheduled PrimFunc.

    Raises
    ------
    CodegenError
        TVM cannot fuse a partition into one kernel; the message names its operators.
    """
    return fuse_partitions(mod, target, functools.partial(_fuse, target=target))


def scheduled_kernels(mod: Any, target: tvm.target.Target, tuning_records: str | None = None) -> Any:
    """The module with every `Primitive` Relax function replaced by one scheduled PrimFunc; raises as `lower`."""
    with target:
        return schedule_kernels(one_kernel_per_partition(mod, target), target, TuningRecords.open(tuning_records))


def schedule_kernels(mod: Any, target: tvm.target.Target, records: TuningRecords | None) -> Any:
    """The module with every PrimFunc bound to threads: by its tuning record, else by DLight's rules.

    Raises
    ------
    CodegenError
        A kernel has no threads after that.
    """
    tuned = {}
    for gv, func in mod.functions_items():
        if records is not None and isinstance(func, tvm.tirx.PrimFunc) and not is_scheduled(func):
            found = records.scheduled(func, target)
            if found is not None:
                tuned[gv] = found.with_attr("tirx.is_scheduled", True)
    result = mod.clone()
    result.update(tvm.IRModule(tuned))
    load_intrinsics()
    with target:
        result = dlight.ApplyDefaultSchedule(*rules())(result)
    for gv, func in result.functions_items():
        if isinstance(func, tvm.tirx.PrimFunc) and not has_threads(func):
            raise CodegenError(f"no schedule rule of DLight binds {gv.name_hint} to threads of the device")
    return all_exact(result)


def rules() -> list[Any]:
    """DLight's schedule rules for a GPU, in TVM's own order."""
    gpu = dlight.gpu
    return [gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Fallback()]


def has_threads(func: tvm.tirx.PrimFunc) -> bool:
    """Whether something in a kernel runs on the device's threads, or it is meant for the host or another device."""
    if func.attrs and (bool(func.attrs.get("tirx.is_host_func", False)) or "target" in func.attrs):
        return True
    loops: list[Any] = []
    extents: list[Any] = []
    tvm_ffi.structural_walk(func.body, (tvm.tirx.For, loops.append))
    tvm_ffi.structural_walk(func.body, (tvm.tirx.AttrStmt, extents.append))
    return any(loop.thread_binding is not None for loop in loops) or any(
        extent.attr_key == "thread_extent" for extent in extents
    )


def finish(mod: Any, target: tvm.target.Target, graph: bool) -> Any:
    """From scheduled kernels to the virtual machine's form: memory, CUDA graphs, builtins."""
    passes = [*cuda_pipeline.dataflow_lower_passes(target), *cuda_pipeline.finalize_passes(target)]
    with target, tvm.transform.PassContext(config={USE_GRAPH: graph}):
        return tvm.transform.Sequential(passes)(mod)


def _fuse(mod: Any, target: tvm.target.Target) -> Any:
    passes = [
        *cuda_pipeline.library_dispatch_passes(target),
        relax.transform.LegalizeOps(_EXACT),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseTIR(),
    ]
    return tvm.transform.Sequential(passes)(mod)
