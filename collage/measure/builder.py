"""Builder: compiles in parallel, in processes of their own, with a time limit for each candidate or plan.

A code generator that crashes or hangs, in native code too, costs its own candidate only (`collage.measure.pool`). After
MetaSchedule's Builder (tvm/s_tir/meta_schedule/builder).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from collage.measure.artifact import Artifact, Preparation, compile_artifact
from collage.measure.faults import Failure
from collage.measure.pool import shared_pool

Built = Artifact | Failure
Item = TypeVar("Item")
Result = TypeVar("Result")


def build_all(
    preparations: Iterable[Preparation],
    jobs: int,
    timeout_s: float = 60.0,
    compile_one: Callable[[Preparation], Artifact] = compile_artifact,
) -> list[Built]:
    """The artifact of each preparation, or the reason why it cannot be built. An iterator prepares the next ones while
    others are built.
    """
    asked: list[Preparation] = []

    def distinct() -> Iterator[Preparation]:
        """All graph-style alternatives for one sub-graph are called in the same way: one library serves them."""
        seen: set[str] = set()
        for preparation in preparations:
            asked.append(preparation)
            if preparation.module_json not in seen:
                seen.add(preparation.module_json)
                yield preparation

    results = run_all(compile_one, distinct(), jobs, timeout_s)
    built = dict(zip(dict.fromkeys(p.module_json for p in asked), results, strict=True))
    return [_serve(p, built[p.module_json]) for p in asked]


def run_all(
    compile_one: Callable[[Item], Result], items: Iterable[Item], jobs: int, timeout_s: float
) -> list[Result | Failure]:
    """What `compile_one` makes of each item in another process, or the reason why it makes nothing."""
    return shared_pool().map(compile_one, items, jobs, timeout_s)


def _serve(preparation: Preparation, built: Built) -> Built:
    return replace(preparation.artifact, library=built.library) if isinstance(built, Artifact) else built
