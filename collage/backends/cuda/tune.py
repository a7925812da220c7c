"""MetaSchedule for the kernels of a CUDA device (`collage.backends.tvm.metaschedule`), whose rivals are DLight's. The
records lie in a folder of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tvm
from tvm.s_tir import meta_schedule as ms

from collage.backends.cuda.intrinsics import load_intrinsics
from collage.backends.cuda.lower import one_kernel_per_partition, schedule_kernels
from collage.backends.tvm import metaschedule as tvm_metaschedule
from collage.backends.tvm.metaschedule import Bench, Progress, tune_kernels
from collage.backends.tvm.tuning_records import TunedKernel

_BATCH = 64


def tune(
    modules: Iterable[Any],
    target: tvm.target.Target,
    threads: int,
    trials: int,
    folder: str,
    progress: Progress = lambda _: None,
) -> list[TunedKernel]:
    """Tune the kernels of partitioned modules that have no record of as many trials.

    Parameters
    ----------
    modules: Relax modules with `Primitive` functions, as for `lower.lower`.
    threads: processes that compile at the same time.
    trials, folder: see `tvm_metaschedule.tune_kernels`.
    """
    return tune_kernels(kernels_of(modules, target), lambda: bench_of(target, threads), trials, folder, progress)


def kernels_of(modules: Iterable[Any], target: tvm.target.Target) -> dict[str, Any]:
    """Structural hash -> tuning workload of every distinct kernel of the modules' native partitions."""
    return tvm_metaschedule.kernels_of(modules, lambda module: one_kernel_per_partition(module, target))


def bench_of(target: tvm.target.Target, threads: int) -> Bench:
    """Workers that compile on the host and run on the device."""
    load_intrinsics()
    evaluator = ms.runner.EvaluatorConfig(number=3, repeat=3, min_repeat_ms=10, enable_cpu_cache_flush=False)
    return Bench(
        target=target,
        device="cuda",
        threads=threads,
        builder=ms.builder.LocalBuilder(max_workers=threads, timeout_sec=60),
        runner=ms.runner.LocalRunner(evaluator_config=evaluator),
        batch=_BATCH,
        untuned=lambda module: schedule_kernels(module, target, None),
    )
