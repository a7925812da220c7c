"""MetaSchedule's workers for kernels of a CUDA device: they compile on the host, and run on the device."""

from __future__ import annotations

import tvm
from tvm.s_tir import meta_schedule as ms

from collage.backends.cuda.intrinsics import load_intrinsics
from collage.backends.cuda.lower import schedule_kernels
from collage.backends.tvm.metaschedule import Bench

_BATCH = 64


def bench_of(target: tvm.target.Target, threads: int) -> Bench:
    """Workers for a target; `threads` of them compile at the same time."""
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
