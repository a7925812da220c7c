"""Builder: compiles in parallel, in processes of their own, with a time limit for each candidate or plan.

A code generator that crashes or hangs, in native code too, costs its own candidate only (`collage.measure.pool`). After
MetaSchedule's Builder (tvm/s_tir/meta_schedule/builder).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from collage.measure.artifact import Artifact, Preparation, compile_artifact
from collage.measure.faults import Failure
from collage.measure.pool import shared_pool

Built = Artifact | Failure
Item = TypeVar("Item")
Result = TypeVar("Result")


def build_all(preparations: Sequence[Preparation], jobs: int, timeout_s: float = 60.0) -> list[Built]:
    """The artifact of each preparation, or the reason why it cannot be built."""
    # All graph-style alternatives for one sub-graph are called in the same way: one library serves them.
    distinct: dict[str, Preparation] = {}
    for preparation in preparations:
        distinct.setdefault(preparation.module_json, preparation)
    built = dict(zip(distinct, run_all(compile_artifact, list(distinct.values()), jobs, timeout_s), strict=True))
    return [_serve(p, built[p.module_json]) for p in preparations]


def run_all(
    compile_one: Callable[[Item], Result], items: Sequence[Item], jobs: int, timeout_s: float
) -> list[Result | Failure]:
    """What `compile_one` makes of each item in another process, or the reason why it makes nothing."""
    return shared_pool().map(compile_one, items, jobs, timeout_s)


def _serve(preparation: Preparation, built: Built) -> Built:
    return replace(preparation.artifact, library=built.library) if isinstance(built, Artifact) else built
