"""The model of errors against whole networks: `python -m benchmarks.error_model`.

Squared errors of operators are measured one by one on some samples (`collage.accuracy.errors`) and added. Random
placements of the whole network run in OpenVINO on other samples: some products in eight bits, the rest in float32 or
bfloat16. The table shows the rank correlation of predicted and measured errors, and the ratio of measured to predicted
error (not squared): its median and the interval that holds 90% of the placements.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.workloads import build
from collage.accuracy.calibration import calibrated
from collage.accuracy.errors import sensitivities, squared_error
from collage.accuracy.program import on_engine
from collage.annotations.precision import BF16, FLOAT32, INT8
from collage.backends.base import Backend
from collage.backends.resolve import available_backends
from collage.compile.rewrite import extract, ordered_inputs
from collage.frontend import load
from collage.graph.from_relax import read_graph
from collage.graph.sub_graph import SubGraph
from collage.measure.inputs import random_inputs
from collage.measure.reference import ReferenceRun
from collage.progress import Reporter
from collage.records import RecordDatabase
from collage.runtime.threads import configure_threads, default_threads


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure each network, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["resnet50", "mobilenet_v2", "bert_base"])
    parser.add_argument("--records", type=Path, default=Path("build/bench-records.db"))
    parser.add_argument("--placements", type=int, default=30)
    parser.add_argument("--samples", type=int, default=2, help="to measure operators on, and as many others to compare")
    parser.add_argument("--json", type=Path, help="where predicted and measured squared errors are written")
    options = parser.parse_args(arguments)
    configure_threads(default_threads())
    rows = {}
    for name in options.names:
        rows[name] = compare(name, options.records, options.placements, options.samples)
        print(name, json.dumps(summary(rows[name])), flush=True)
    table = Table("network", "errors", "rank correlation", "measured / predicted", "90% of placements")
    for name, points in rows.items():
        s = summary(points)
        errors = f"{s['least']:.2%} to {s['largest']:.2%}"
        table.add_row(name, errors, f"{s['rank']:.3f}", f"{s['median']:.2f}", f"{s['low']:.2f} to {s['high']:.2f}")
    Console(width=120).print(table)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


def compare(name: str, records: Path, placements: int, count: int) -> list[tuple[float, float]]:
    """(predicted, measured) squared error of each placement."""
    threads = default_threads()
    module = load(build(name))
    graph = read_graph(module)
    samples = [tuple(random_inputs(module, seed)) for seed in range(2 * count)]
    searched_with, held_out = samples[:count], samples[count:]
    reference = ReferenceRun(module, graph, threads)
    module = calibrated(module, graph, map(reference.on, searched_with))
    graph = read_graph(module)
    backends = {b.name: b for b in available_backends("cpu", (FLOAT32, BF16)) if b.name.startswith("openvino")}
    records.parent.mkdir(parents=True, exist_ok=True)
    with RecordDatabase(records) as database:
        errors = sensitivities(
            module, graph, backends, searched_with, threads, database, Reporter(), [INT8, BF16], reference
        ).errors
    products = [index for index, error in errors[INT8].items() if np.isfinite(error)]
    whole = SubGraph(graph, graph.coverable)
    function = extract(module, whole)["main"]
    given = [reference.on(sample).values(ordered_inputs(whole)) for sample in held_out]

    def outputs(backend: Backend, labelled: Sequence[int]) -> list[list[np.ndarray]]:
        position = {index: i for i, index in enumerate(graph.coverable)}
        ranges = [(position[i], graph.nodes[graph.nodes[i].inputs[0]].range) for i in labelled]
        program = on_engine(function, backend, threads, ranges)
        return [program(arrays) for arrays in given]

    expected = outputs(backends["openvino"], [])
    rng = np.random.default_rng(0)
    points = []
    for _ in range(placements):
        backend = backends[str(rng.choice(sorted(backends)))]
        labelled = sorted(rng.choice(products, rng.integers(1, len(products) + 1), replace=False).tolist())
        rest = {i: e for i, e in errors.get(backend.precision, {}).items() if i not in set(labelled)}
        predicted = sum(errors[INT8][index] for index in labelled) + sum(rest.values())
        measured = np.mean([squared_error(o, e) for o, e in zip(outputs(backend, labelled), expected, strict=True)])
        points.append((float(predicted), float(measured)))
    return points


def summary(points: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Rank correlation, and quantiles of the ratio of measured to predicted error."""
    predicted, measured = np.sqrt(np.asarray(points)).T
    ratio = measured / predicted
    low, median, high = np.quantile(ratio, [0.05, 0.5, 0.95])
    rank = float(np.corrcoef(predicted.argsort().argsort(), measured.argsort().argsort())[0, 1])
    ends = {"least": float(measured.min()), "largest": float(measured.max())}
    return {"rank": rank, "median": float(median), "low": float(low), "high": float(high), **ends}


if __name__ == "__main__":
    main()
