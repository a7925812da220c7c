"""From a partitioned Relax module to the virtual machine's form, with TVM: one kernel per native partition.

The order is TVM's own (`tvm.relax.backend.cpu_generic.pipeline`) but for operator fusion, which is left out: a
partition *is* what is fused (`partition`). Every `Primitive` Relax function becomes one PrimFunc, which is then
scheduled from tuning records or by rules (`schedule`).
"""

from __future__ import annotations

import functools
from typing import Any

import tvm
from tvm import relax
from tvm.relax.backend.cpu_generic import pipeline as cpu_pipeline

from collage.backends.tvm.flatten import flatten_addresses
from collage.backends.tvm.legalize import LEGALIZATIONS
from collage.backends.tvm.partition import fuse_partitions, is_scheduled
from collage.backends.tvm.schedule.kernel import schedule
from collage.backends.tvm.tuning_records import TuningRecords
from collage.backends.tvm.vector_math import use_vector_math


def cpu_target(threads: int) -> tvm.target.Target:
    """This machine's processor as a TVM target, for kernels that run on `threads` threads."""
    cpu = tvm.target.codegen.llvm_get_system_cpu()
    return tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": threads})


def lower(mod: Any, target: tvm.target.Target, tuning_records: str | None = None, scheduled: bool = True) -> Any:
    """Everything before code generation.

    Parameters
    ----------
    mod
        `main`, and the private `Primitive` functions that it calls; calls of external symbols stay as they are.
    tuning_records
        Folder of a MetaSchedule database; kernels that have a record there are scheduled by it.
    scheduled
        False leaves kernels as TVM makes them, slow and plain: references that nothing may have broken.

    Returns
    -------
    a module for `tvm.compile(..., relax_pipeline=tvm.transform.Sequential([]))`.

    Raises
    ------
    CodegenError
        TVM cannot make one kernel of a partition.
    """
    with target:
        kernels = scheduled_kernels(mod, target, tuning_records) if scheduled else one_kernel_per_partition(mod, target)
        return _finish(kernels, target)


def baseline_module(mod: Any, target: tvm.target.Target, scheduled: bool = False) -> Any:
    """TVM's own default build of a canonical module, to be compared with: fused by TVM, not partitioned by Collage.

    Parameters
    ----------
    scheduled
        Give TVM's fused kernels the schedule rules that Collage's native partitions get; TVM itself leaves them
        unscheduled on the CPU, which makes it a baseline easily beaten.

    Returns
    -------
    a module for `tvm.compile(..., relax_pipeline=tvm.transform.Sequential([]))`.
    """
    with target:
        if not scheduled:
            return relax.get_default_pipeline(target)(mod)
        dispatched = tvm.transform.Sequential(cpu_pipeline.library_dispatch_passes(target))(mod)
        passes = [
            relax.transform.LegalizeOps(LEGALIZATIONS),
            relax.transform.AnnotateTIROpPattern(),
            relax.transform.FoldConstant(),
            relax.transform.FuseOps(),
            relax.transform.FuseTIR(),
        ]
        return _finish(schedule_kernels(tvm.transform.Sequential(passes)(dispatched), target, None), target)


def one_kernel_per_partition(mod: Any, target: tvm.target.Target) -> Any:
    """The module with every `Primitive` Relax function replaced by one unscheduled PrimFunc: what is tuned and what
    is built.

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
    """The module with every PrimFunc scheduled: by its tuning record, else by the rules."""
    updated = {}
    for gv, func in mod.functions_items():
        if isinstance(func, tvm.tirx.PrimFunc) and not is_scheduled(func):
            tuned = records.scheduled(func, target) if records is not None else None
            done = tuned if tuned is not None else schedule(func, target)
            updated[gv] = use_vector_math(flatten_addresses(done)).with_attr("tirx.is_scheduled", True)
    result = mod.clone()
    result.update(tvm.IRModule(updated))
    return result


def _fuse(mod: Any, target: tvm.target.Target) -> Any:
    passes = [
        *cpu_pipeline.library_dispatch_passes(target),
        relax.transform.LegalizeOps(LEGALIZATIONS),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseTIR(),
    ]
    return tvm.transform.Sequential(passes)(mod)


def _finish(mod: Any, target: tvm.target.Target) -> Any:
    passes = [*cpu_pipeline.dataflow_lower_passes(target), *cpu_pipeline.finalize_passes(target)]
    return tvm.transform.Sequential(passes)(mod)
