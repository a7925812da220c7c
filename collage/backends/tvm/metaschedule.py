"""MetaSchedule for native kernels, on request: every kernel is tuned once, whatever number of networks and partitions
it is in, and a record is used where it beats the kernel that is made without one, in interleaved measurements.

What is tuned is what is built. The workers of the CPU are in `bench`, those of a CUDA device in
`collage.backends.cuda.bench`.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm.s_tir import meta_schedule as ms

from collage.backends.base import Progress
from collage.backends.tvm.partition import alone, is_primitive
from collage.backends.tvm.tuning_records import TunedKernel, TuningRecords, kernel_hash, kernel_module

#: Rounds in the comparison of the best record with the untuned kernel.
_ROUNDS = 5
_LOGGER = "tvm.s_tir.meta_schedule"


@dataclass(frozen=True)
class Bench:
    """MetaSchedule's workers, which take seconds to start and serve all kernels.

    Attributes
    ----------
    target, device
        What kernels are for, and TVM's name of where they run.
    threads
        That compile at the same time.
    builder, runner
        MetaSchedule's.
    batch
        Schedules that are built and measured at a time.
    untuned
        The scheduled kernel of a workload without a record.
    """

    target: tvm.target.Target
    device: str
    threads: int
    builder: Any
    runner: Any
    batch: int
    untuned: Callable[[Any], Any]


def tune_kernels(
    kernels: Mapping[str, Any],
    make_bench: Callable[[], Bench],
    trials: int,
    folder: str,
    progress: Progress = lambda _: None,
) -> list[TunedKernel]:
    """Tune the kernels that have no record of as many trials.

    Each kernel's result is on disk before the next is begun; an interrupted run goes on where it was.

    Parameters
    ----------
    kernels
        As `kernels_of` finds them.
    make_bench
        Called if anything is to be done.
    trials
        Schedules to try per kernel.
    folder
        Of the records; MetaSchedule's own logs go to `logs` in it.

    Returns
    -------
    the results of the kernels that were tuned now.
    """
    records = TuningRecords(folder)
    waiting = [
        (name, module)
        for name, module in kernels.items()
        if name not in records.kernels or records.kernels[name].trials < trials
    ]
    results: list[TunedKernel] = []
    if not waiting:
        return results
    # MetaSchedule copies the level of this logger to its console handler, and resets the logger itself.
    logging.getLogger(_LOGGER).setLevel(logging.CRITICAL)
    bench = make_bench()
    for number, (name, module) in enumerate(waiting, 1):
        progress(f"tuning kernel {number} of {len(waiting)}, {trials} trials")
        entry = _tune_kernel(name, module, trials, records, bench)
        records.add(entry)
        results.append(entry)
    return results


def kernels_of(modules: Iterable[Any], one_kernel_per_partition: Callable[[Any], Any], backend: str) -> dict[str, Any]:
    """Structural hash -> tuning workload of every distinct kernel of the native partitions that a backend has in
    modules.
    """
    found: dict[str, Any] = {}
    for module in modules:
        own = [
            symbol
            for symbol, function in module.functions_items()
            if is_primitive(function) and function.attrs.get("collage.backend", backend) == backend
        ]
        for _, func in one_kernel_per_partition(alone(module, own)).functions_items() if own else ():
            if isinstance(func, tvm.tirx.PrimFunc):
                workload = kernel_module(func)
                found.setdefault(kernel_hash(workload), workload)
    return found


def _tune_kernel(name: str, module: Any, trials: int, records: TuningRecords, bench: Bench) -> TunedKernel:
    """Search schedules of one kernel, and measure the best against the untuned one."""
    # MetaSchedule refuses a kernel that has nothing to schedule; the untuned kernel is then the only one.
    with contextlib.suppress(RuntimeError, ValueError):
        ms.tir_integration.tune_tir(
            module,
            bench.target,
            work_dir=str(records.folder),
            max_trials_global=trials,
            num_trials_per_iter=min(trials, bench.batch),
            builder=bench.builder,
            runner=bench.runner,
            database=records.database,
            # A learned model has nothing to learn from a single batch; random schedules cost less to find.
            strategy="evolutionary" if trials > bench.batch else "replay-trace",
            cost_model="xgb" if trials > bench.batch else "random",
            num_tuning_cores=bench.threads,
            seed=1,
        )
    best = records.database.query_schedule(module, bench.target, "main")
    alternatives = [bench.untuned(module), *([] if best is None else [best.mod])]
    seconds = _compare(alternatives, bench)
    return TunedKernel(name, trials, bench.threads, seconds[0], seconds[1] if best is not None else None)


def _compare(alternatives: list[Any], bench: Bench) -> list[float]:
    """Median seconds of scheduled kernels, measured interleaved; infinite for one that does not build or run."""
    built = bench.builder.build([ms.builder.BuilderInput(kernel, bench.target) for kernel in alternatives])
    infos = ms.arg_info.ArgInfo.from_entry_func(alternatives[0], remove_preproc=True)
    samples: list[list[float]] = [[] for _ in alternatives]
    for _ in range(_ROUNDS):
        for taken, result in zip(samples, built, strict=True):
            if result.error_msg is None:
                future = bench.runner.run([ms.runner.RunnerInput(result.artifact_path, bench.device, infos)])[0]
                outcome = future.result()
                if outcome.error_msg is None:
                    taken.extend(float(second) for second in outcome.run_secs)
    for result in built:
        if result.artifact_path is not None:
            shutil.rmtree(Path(result.artifact_path).parent, ignore_errors=True)
    return [statistics.median(taken) if taken else float("inf") for taken in samples]
