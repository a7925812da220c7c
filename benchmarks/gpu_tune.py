"""Tune one network on a device, in a process of its own: the plan, the compiled model, and what was found, as JSON.

    python -m benchmarks.gpu_tune bert_base --dtype float16 --out row.json --library bert.so --records records.db

With `--plan FILE` nothing is searched or measured: the model of a plan that was made before is compiled again.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import collage
from benchmarks.workloads import build
from benchmarks.workloads.builder import FLOATS
from collage.records import RecordDatabase
from collage.runtime.device_info import describe_device

#: Distributions whose versions a row states, where they are installed.
_LIBRARIES = (
    *("apache-tvm", "apache-tvm-ffi", "nvidia-cublas", "nvidia-cudnn-cu13", "nvidia-cutlass", "nvidia-cuda-nvrtc"),
    *("tensorrt", "onnxruntime-gpu", "onnxruntime", "torch", "triton", "numpy"),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Tune, compile, export; write the row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network")
    parser.add_argument("--dtype", choices=FLOATS, default="float32")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--backends", nargs="*", help="names; all that are available when left out")
    parser.add_argument("--searcher", default="dijkstra")
    parser.add_argument("--search-s", type=float, help="seconds that an evolutionary search may take")
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--plan", type=Path, help="a row that was made before: only its model is compiled")
    parser.add_argument("--out", type=Path, required=True, help="the row")
    parser.add_argument("--library", type=Path, required=True, help="the compiled model")
    asked = parser.parse_args(arguments)
    module = collage.load(build(asked.network, dtype=asked.dtype, batch=asked.batch))
    if asked.plan is not None:
        saved = asked.out.with_suffix(".plan")
        saved.write_text(json.dumps(json.loads(asked.plan.read_text())["plan"]))
        collage.Plan.load(saved, module).compile().export(asked.library)
        return
    with RecordDatabase(asked.records) as database:
        before = sum(1 for _ in database)
    begin = time.monotonic()
    parameters = {} if asked.search_s is None else {"time_limit_s": asked.search_s}
    plan = collage.partition(
        module,
        asked.backends,
        searcher=asked.searcher,
        device=asked.device,
        records=asked.records,
        searcher_parameters=parameters,
    )
    tuned = time.monotonic() - begin
    plan.compile().export(asked.library)
    with RecordDatabase(asked.records) as database:
        after = sum(1 for _ in database)
    row = {
        **found(plan),
        "tune_s": tuned,
        "export_s": time.monotonic() - begin - tuned,
        "new_records": after - before,
        "facts": facts(asked.device),
        "plan": plan.to_dict(),
    }
    asked.out.write_text(json.dumps(row))


def found(plan: collage.Plan) -> dict[str, Any]:
    """What ships, and what each rival took when all ran by turns; seconds."""
    rivals = plan.confirmation.rivals if plan.confirmation is not None else ()
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
    """What a program prints; nothing where there is no such program."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


if __name__ == "__main__":
    main()
