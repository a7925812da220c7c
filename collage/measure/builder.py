"""Builder: compiles in parallel, in processes of their own (joblib), with a time limit for each candidate or plan.

A code generator that crashes breaks the pool; what was in it is then built piece by piece, so that only the culprit is
lost. After MetaSchedule's Builder (tvm/s_tir/meta_schedule/builder).
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FrameType
from typing import NoReturn, TypeVar

import joblib
from joblib.externals.loky.process_executor import TerminatedWorkerError

from collage.errors import last_line
from collage.measure.artifact import Artifact, Preparation, compile_artifact
from collage.measure.helper import import_tvm_without_torch

Built = Artifact | str
Item = TypeVar("Item")


def build_all(preparations: Sequence[Preparation], jobs: int, timeout_s: float = 60.0) -> list[Built]:
    """The artifact of each preparation, or the reason why it cannot be built."""
    # All graph-style alternatives for one sub-graph are called in the same way: one library serves them.
    distinct: dict[str, Preparation] = {}
    for preparation in preparations:
        distinct.setdefault(preparation.module_json, preparation)
    built = dict(zip(distinct, run_all(compile_artifact, list(distinct.values()), jobs, timeout_s), strict=True))
    return [_serve(p, built[p.module_json]) for p in preparations]


def run_all(compile_one: Callable[[Item], Artifact], items: Sequence[Item], jobs: int, timeout_s: float) -> list[Built]:
    """What `compile_one` makes of each item in another process, or the reason why it makes nothing."""
    if not items:
        return []
    try:
        return list(_pool(jobs)(joblib.delayed(_run)(compile_one, item, timeout_s) for item in items))
    except TerminatedWorkerError:
        return [_run_alone(compile_one, item, timeout_s) for item in items]


def _serve(preparation: Preparation, built: Built) -> Built:
    return replace(preparation.artifact, library=built.library) if isinstance(built, Artifact) else built


def _run_alone(compile_one: Callable[[Item], Artifact], item: Item, timeout_s: float) -> Built:
    try:
        built: list[Built] = _pool(2)([joblib.delayed(_run)(compile_one, item, timeout_s)])
        return built[0]
    except TerminatedWorkerError as error:
        return f"crashes the compiler: {str(error).splitlines()[0][:300]}"


def _pool(jobs: int) -> joblib.Parallel:
    return joblib.Parallel(n_jobs=jobs, backend="loky", initializer=import_tvm_without_torch)


def _run(compile_one: Callable[[Item], Artifact], item: Item, timeout_s: float) -> Built:
    """Runs in the pool. The alarm ends Python code; code that never returns to Python is ended by the crash path."""
    signal.signal(signal.SIGALRM, _expired)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        return compile_one(item)
    except _Expired:
        return f"does not compile within {timeout_s:g} s"
    except Exception as error:  # whatever a compiler raises makes this one candidate Invalid, with the reason
        return f"does not compile: {last_line(error)}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class _Expired(Exception):
    pass


def _expired(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise _Expired
