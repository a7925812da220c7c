"""The ten networks, from ONNX file to a fresh process: tuned, exported, reloaded, compared with ONNX Runtime, and
timed.

    python -m benchmarks.networks [NAME ...] --records records.db --out results.jsonl

Each step is a process of its own: building the ONNX file, `collage tune`, and running the compiled model in a process
that imports only `collage.runtime`. End-to-end latencies come from the confirmation, where all plans are interleaved;
only their ratios are comparable between runs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workloads import NAMES, random_inputs

_RUN_COMPILED = """
import sys, numpy as np
import collage.runtime
model = collage.runtime.load(sys.argv[1])
data = np.load(sys.argv[2])
result = model(*(data[f"i{k}"] for k in range(len(model.inputs))))
np.savez(sys.argv[3], *(result if isinstance(result, tuple) else (result,)))
loaded = sorted(m for m in sys.modules if m.startswith(("collage", "searchers", "estimators")))
print(",".join(loaded))
"""


def bench(name: str, records: Path, folder: Path, again: bool) -> dict[str, Any]:
    """Everything about one network, as one JSON-ready row; `again` tunes twice."""
    onnx_file, library, plan = folder / f"{name}.onnx", folder / f"{name}.so", folder / f"{name}.json"
    _process("benchmarks.workloads", name, "-o", str(onnx_file))
    tune = [
        "collage.cli.main",
        "tune",
        str(onnx_file),
        "-o",
        str(library),
        "--plan",
        str(plan),
        "--records",
        str(records),
    ]
    started = time.monotonic()
    _process(*tune)
    first_s = time.monotonic() - started
    second_s = None
    if again:
        started = time.monotonic()
        _process(*tune)
        second_s = time.monotonic() - started
    found = json.loads(plan.read_text())
    error, modules = _run_compiled(onnx_file, library, folder / name)
    plans = {r["name"]: r for r in found["confirmation"]["rivals"]}
    # Ratios are of interleaved runs, because the machine drifts. A plan that was stopped early has its median only.
    shipped = plans[found["choice"]]["latency"]["seconds"]
    ratios = {
        n: 1 / r["ratio"][0] if r["ratio"] else shipped / r["latency"]["seconds"]
        for n, r in plans.items()
        if r["latency"]["seconds"] != "invalid"
    }
    singles = {n: ratio for n, ratio in ratios.items() if n.endswith(" alone")}
    used: dict[str, int] = {}
    for partition in found["partitions"]:
        used[partition["backend"]] = used.get(partition["backend"], 0) + 1
    return {
        "network": name,
        "shipped": found["choice"],
        "partitions": {k: v for k, v in used.items() if k != "host"},
        "ratio_to_best_single": max(singles.values()),
        "ratio_to_each": singles,
        "searched_to_best_single": max(singles.values()) / ratios["collage"],
        "additive_error": plans["collage"]["latency"]["seconds"] / found["corrected_cost"]["seconds"] - 1.0,
        "rounds": found["rounds"],
        "relative_error_to_onnxruntime": error,
        "modules_in_fresh_process": modules,
        "cold_tune_s": first_s,
        "second_tune_s": second_s,
    }


def _run_compiled(onnx_file: Path, library: Path, folder: Path) -> tuple[float, list[str]]:
    """Largest error of the reloaded model against ONNX Runtime on the original file, relative to the largest output."""
    import onnx
    import onnxruntime as ort

    folder.mkdir(exist_ok=True)
    inputs = random_inputs(onnx.load(str(onnx_file)), seed=1)
    named: dict[str, Any] = {f"i{k}": array for k, array in enumerate(inputs.values())}
    np.savez(folder / "inputs.npz", **named)
    command = [
        sys.executable,
        "-c",
        _RUN_COMPILED,
        str(library),
        str(folder / "inputs.npz"),
        str(folder / "outputs.npz"),
    ]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    ours = np.load(folder / "outputs.npz")
    reference = ort.InferenceSession(str(onnx_file), providers=["CPUExecutionProvider"]).run(None, inputs)
    error = max(
        float(np.max(np.abs(ours[f"arr_{k}"] - expected)) / max(np.max(np.abs(expected)), 1e-12))
        for k, expected in enumerate(reference)
    )
    return error, printed.strip().split(",")


def _process(module: str, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", module, *arguments], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(NAMES))
    parser.add_argument("--records", type=Path, default=Path("build/bench-records.db"))
    parser.add_argument("--out", type=Path, default=Path("build/networks.jsonl"))
    parser.add_argument("--again", action="store_true", help="tune a second time, which measures nothing")
    arguments = parser.parse_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or NAMES:
        with tempfile.TemporaryDirectory(prefix="collage-bench-") as folder:
            row = bench(name, arguments.records, Path(folder), arguments.again)
        with arguments.out.open("a") as out:
            out.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
