"""Tune one network on a device, in a process of its own: the plan, the compiled model, and what was found."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import collage

#: Distributions whose versions a row states, where they are installed.
_LIBRARIES = (
    *("apache-tvm", "apache-tvm-ffi", "nvidia-cublas", "nvidia-cudnn-cu13", "nvidia-cutlass", "nvidia-cuda-nvrtc"),
    *("tensorrt", "onnxruntime-gpu", "onnxruntime", "torch", "triton", "numpy"),
)


def tune(
    network: str,
    dtype: str,
    batch: int,
    device: str,
    backends: Sequence[str] | None,
    searcher: str,
    search_s: float | None,
    records: Path,
    library: Path,
    recorded_only: bool = False,
) -> dict[str, Any]:
    """Tune, compile and export one network; the row of what was found. For `benchmarks.gpu.isolated`.

    Parameters
    ----------
    backends
        Names; None is all that are available.
    search_s
        Seconds that an evolutionary search may take; None for a searcher that has no limit.
    library
        Where the compiled model is written.
    recorded_only
        Measure nothing: the best plan of the records that there are.
    """
    import collage

    measuring: dict[str, Any] = {"effort": "thorough"}
    if recorded_only:
        measuring = {"estimator": "cached", "confirm_end_to_end": False}
    before, begin = recorded(records), time.monotonic()
    plan = collage.partition(
        _module(network, dtype, batch),
        backends,
        searcher=searcher,
        device=device,
        records=records,
        searcher_parameters={} if search_s is None else {"time_limit_s": search_s},
        **measuring,
    )
    tuned = time.monotonic() - begin
    plan.compile().export(library)
    return {
        **found(plan),
        "tune_s": tuned,
        "export_s": time.monotonic() - begin - tuned,
        "new_records": recorded(records) - before,
        "facts": facts(device),
        "plan": plan.to_dict(),
    }


def compile_again(network: str, dtype: str, batch: int, plan: Mapping[str, Any], library: Path) -> None:
    """Compile the model of a row's plan; nothing is searched or measured. For `benchmarks.gpu.isolated`."""
    import collage

    saved = library.with_suffix(".plan")
    saved.write_text(json.dumps(plan))
    collage.Plan.load(saved, _module(network, dtype, batch)).compile().export(library)


def recorded(path: Path) -> int:
    """How many records a database has."""
    from collage.records import RecordDatabase

    if not path.exists():
        return 0
    with RecordDatabase(path) as database:
        return len(database)


def _module(network: str, dtype: str, batch: int) -> Any:
    import collage
    from benchmarks.workloads import build

    return collage.load(build(network, dtype=dtype, batch=batch))


def found(plan: collage.Plan) -> dict[str, Any]:
    """What ships, and the interleaved latency of each contestant; seconds."""
    rivals = plan.confirmation.contestants if plan.confirmation is not None else ()
    return {
        "shipped": plan.choice,
        "partitions": dict(Counter(p.backend for p in plan.partitions)),
        "searched_cost_s": plan.searched_cost.seconds,
        "corrected_cost_s": plan.corrected_cost.seconds if plan.corrected_cost.is_finite else None,
        "rivals": {
            r.name: {"latency_s": r.latency.seconds, "ratio": r.ratio}
            if r.latency.is_finite
            else {"reason": r.latency.reason}
            for r in rivals
        },
        "notes": list(plan.notes),
    }


def facts(device: str) -> dict[str, Any]:
    """The device, its driver and clocks, and the versions of libraries."""
    from collage.runtime.device_info import describe_device

    versions = {}
    for name in _LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    made: dict[str, Any] = {"device": describe_device(device).as_dict(), "versions": versions}
    if device == "cuda":
        made["driver"] = _asked("nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,clocks.mem", "--format=csv")
        made["nvcc"] = _asked("nvcc", "--version").splitlines()[-1:]
    return made


def _asked(*command: str) -> str:
    """The output of a program; nothing where there is no such program."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
