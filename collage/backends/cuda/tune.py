"""MetaSchedule for the kernels of a CUDA device, on request.

As on the CPU (`collage.backends.tvm_tune`), every kernel is tuned once, whatever number of networks it is in, what is
tuned is what is built, and a record is used where it beats DLight's kernel, measured by turns. The records have the
same form, and lie in a folder of their own.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm.s_tir import meta_schedule as ms

from collage.backends.cuda.intrinsics import load_intrinsics
from collage.backends.cuda.lower import one_kernel_per_partition, schedule_kernels
from collage.backends.tvm_records import TunedKernel, TuningRecords, kernel_hash, kernel_module

Progress = Callable[[str], None]

#: Schedules that MetaSchedule builds and measures at a time.
_BATCH = 64
#: Turns in the comparison of the best record with DLight's kernel.
_TURNS = 5
_DEVICE = "cuda"
_LOGGER = "tvm.s_tir.meta_schedule"


def tune(
    modules: Iterable[Any],
    target: tvm.target.Target,
    threads: int,
    trials: int,
    folder: str,
    progress: Progress = lambda _: None,
) -> list[TunedKernel]:
    """Tune the kernels of partitioned modules that have no record of as many trials.

    Each kernel's result is on disk before the next is begun; an interrupted run goes on where it was.

    Parameters
    ----------
    modules: Relax modules with `Primitive` functions, as for `lower.lower`.
    threads: processes that compile at the same time.
    trials: schedules to try per kernel.
    folder: of the records; MetaSchedule's own logs go to `logs` in it.
    """
    records = TuningRecords(folder)
    waiting = [
        (name, module)
        for name, module in kernels_of(modules, target).items()
        if name not in records.kernels or records.kernels[name].trials < trials
    ]
    results: list[TunedKernel] = []
    if not waiting:
        return results
    load_intrinsics()
    bench = Bench.of(target, threads)
    for number, (name, module) in enumerate(waiting, 1):
        progress(f"tuning kernel {number} of {len(waiting)}, {trials} trials")
        entry = tune_kernel(name, module, trials, records, bench)
        records.add(entry)
        results.append(entry)
    return results


@dataclass(frozen=True)
class Bench:
    """MetaSchedule's workers, which take seconds to start and serve all kernels."""

    target: tvm.target.Target
    threads: int
    builder: Any
    runner: Any

    @classmethod
    def of(cls, target: tvm.target.Target, threads: int) -> Bench:
        # MetaSchedule copies the level of this logger to its console handler, and resets the logger itself.
        logging.getLogger(_LOGGER).setLevel(logging.CRITICAL)
        builder = ms.builder.LocalBuilder(max_workers=threads, timeout_sec=60)
        evaluator = ms.runner.EvaluatorConfig(number=3, repeat=3, min_repeat_ms=10, enable_cpu_cache_flush=False)
        return cls(target, threads, builder, ms.runner.LocalRunner(evaluator_config=evaluator))


def kernels_of(modules: Iterable[Any], target: tvm.target.Target) -> dict[str, Any]:
    """Structural hash -> tuning workload of every distinct kernel of the modules' native partitions."""
    found: dict[str, Any] = {}
    for module in modules:
        for _, func in one_kernel_per_partition(module, target).functions_items():
            if isinstance(func, tvm.tirx.PrimFunc):
                workload = kernel_module(func)
                found.setdefault(kernel_hash(workload), workload)
    return found


def tune_kernel(name: str, module: Any, trials: int, records: TuningRecords, bench: Bench) -> TunedKernel:
    """Search schedules of one kernel, and measure the best against DLight's."""
    # MetaSchedule refuses a kernel that has nothing to schedule; DLight's kernel then has no rival.
    with contextlib.suppress(RuntimeError, ValueError):
        ms.tir_integration.tune_tir(
            module,
            bench.target,
            work_dir=str(records.folder),
            max_trials_global=trials,
            num_trials_per_iter=min(trials, _BATCH),
            builder=bench.builder,
            runner=bench.runner,
            database=records.database,
            # A learned model has nothing to learn from a single batch; random schedules cost less to find.
            strategy="evolutionary" if trials > _BATCH else "replay-trace",
            cost_model="xgb" if trials > _BATCH else "random",
            num_tuning_cores=bench.threads,
            seed=1,
        )
    best = records.database.query_schedule(module, bench.target, "main")
    rivals = [schedule_kernels(module, bench.target, None)]
    if best is not None:
        rivals.append(best.mod)
    seconds = compare(rivals, bench)
    return TunedKernel(name, trials, bench.threads, seconds[0], seconds[1] if best is not None else None)


def compare(rivals: list[Any], bench: Bench) -> list[float]:
    """Median seconds of scheduled kernels that take turns; infinite for one that does not build or run."""
    built = bench.builder.build([ms.builder.BuilderInput(rival, bench.target) for rival in rivals])
    infos = ms.arg_info.ArgInfo.from_entry_func(rivals[0], remove_preproc=True)
    samples: list[list[float]] = [[] for _ in rivals]
    for _ in range(_TURNS):
        for taken, result in zip(samples, built, strict=True):
            if result.error_msg is None:
                future = bench.runner.run([ms.runner.RunnerInput(result.artifact_path, _DEVICE, infos)])[0]
                outcome = future.result()
                if outcome.error_msg is None:
                    taken.extend(float(second) for second in outcome.run_secs)
    for result in built:
        if result.artifact_path is not None:
            shutil.rmtree(Path(result.artifact_path).parent, ignore_errors=True)
    return [statistics.median(taken) if taken else float("inf") for taken in samples]
