"""MetaSchedule's workers on the CPU: kernels are built like those that ship, and measured on as many threads as they
will run on.
"""

from __future__ import annotations

import functools
from typing import Any

import tvm
from tvm.s_tir import meta_schedule as ms

from collage.backends.tvm.metaschedule import Bench
from collage.backends.tvm.schedule.kernel import schedule
from collage.backends.tvm.vector_math import use_vector_math
from collage.runtime.threads import configure_threads

_BATCH = 32


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
