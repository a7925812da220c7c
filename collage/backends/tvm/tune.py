"""MetaSchedule for the CPU's native kernels (`tvm_metaschedule`): they are built like those that ship, and measured on
as many threads as they will run on.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import tvm
from tvm.s_tir import meta_schedule as ms

from collage.backends.tvm import metaschedule as tvm_metaschedule
from collage.backends.tvm.lower import one_kernel_per_partition
from collage.backends.tvm.metaschedule import Bench, Progress, tune_kernels
from collage.backends.tvm.schedule.rules import schedule
from collage.backends.tvm.tuning_records import TunedKernel
from collage.backends.tvm.vector_math import use_vector_math
from collage.runtime.threads import configure_threads

_BATCH = 32


def tune(
    modules: Iterable[Any],
    target: tvm.target.Target,
    trials: int,
    folder: str,
    progress: Progress = lambda _: None,
) -> list[TunedKernel]:
    """Tune the kernels of partitioned modules that have no record of as many trials.

    Parameters
    ----------
    modules: Relax modules with `Primitive` functions, as for `tvm_lower.lower`.
    trials, folder: see `tvm_metaschedule.tune_kernels`.
    """
    return tune_kernels(kernels_of(modules, target), functools.partial(bench_of, target), trials, folder, progress)


def kernels_of(modules: Iterable[Any], target: tvm.target.Target) -> dict[str, Any]:
    """Structural hash -> tuning workload of every distinct kernel of the modules' native partitions."""
    return tvm_metaschedule.kernels_of(modules, lambda module: one_kernel_per_partition(module, target))


def bench_of(target: tvm.target.Target) -> Bench:
    """Workers that build and run kernels as the deployment does."""
    threads = int(target.attrs["num-cores"])
    return Bench(
        target=target,
        device="cpu",
        threads=threads,
        builder=ms.builder.LocalBuilder(max_workers=threads, f_build=build_kernel),
        runner=ms.runner.LocalRunner(
            evaluator_config=ms.runner.EvaluatorConfig(number=1, repeat=3, min_repeat_ms=20),
            initializer=functools.partial(configure_threads, threads),
        ),
        batch=_BATCH,
        untuned=lambda module: tvm.IRModule({"main": schedule(module["main"], target)}),
    )


def build_kernel(mod: Any, target: tvm.target.Target, _params: Any) -> Any:
    """How MetaSchedule's workers build a trial: like the kernels that ship."""
    return tvm.tirx.build(tvm.IRModule({"main": use_vector_math(mod["main"])}), target=target)
