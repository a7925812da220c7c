"""Predicted against measured errors: `python -m benchmarks.precision.error_model [NETWORK ...] --placements 100`.

The search adds up squared errors of operators (`collage.accuracy.errors`). Here random placements of each network are
run as they are deployed, on samples that the errors were not measured on, and on those that they were: the latter says
how well errors add up, the former what samples tell of others, too. A placement takes OpenVINO's cover of the
network, cuts its partitions in two at random places, gives each part a precision, and labels products as in eight bits,
from few to nearly all of them. FOLDER/NETWORK.json has each placement with its errors, their rank correlation, and what
90% of the ratios of measured to predicted errors lie between.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr  # type: ignore[import-untyped,unused-ignore]

from benchmarks.precision import samples as made_samples
from benchmarks.precision import table
from benchmarks.precision.error import Outputs, relative_l2
from benchmarks.referee.origin import origin
from benchmarks.workloads import HELD_OUT, WORKLOADS, build
from collage.accuracy.calibration import calibrated
from collage.accuracy.errors import ErrorTable, sensitivities
from collage.accuracy.samples import Sample, read_samples
from collage.annotations.precision import BF16, FLOAT32, INT8
from collage.api.partitioner import enumerate_candidates
from collage.backends.base import Backend
from collage.backends.resolve import available_backends
from collage.cost.cost import Cost
from collage.deployed.plan_runner import PlanRunner
from collage.deployed.protocol import EndToEnd
from collage.files import replacing
from collage.frontend import load
from collage.frontend.values import input_specs
from collage.graph.candidates import CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.from_relax import read_graph
from collage.graph.index_set import IndexSet
from collage.graph.sub_graph import SubGraph
from collage.measure.reference import ReferenceRun
from collage.progress import Reporter
from collage.records import RecordDatabase
from collage.runtime.threads import configure_threads
from collage.search import CostTable, SearchProblem, execution_order
from collage.search.single_backend import single_backend
from searchers.dijkstra import DijkstraSearcher

#: A backend of each precision whose partitions are interchangeable, and whoever takes the rest.
_ENGINES = {FLOAT32: "openvino", BF16: "openvino-bf16"}
_REST = "tvm"
#: A partition is cut once in so many cases.
_CUT = 0.5


@dataclass(frozen=True)
class Network:
    """A calibrated network with what its operators cost, and OpenVINO's cover of it."""

    module: Any
    graph: DataflowGraph
    backends: Mapping[str, Backend]
    cover: Sequence[CandidatePartition]
    errors: ErrorTable
    threads: int


@dataclass(frozen=True)
class Point:
    """One placement.

    Attributes
    ----------
    products, partitions
        How many are in eight bits; how many partitions there are.
    predicted
        Root of the sum of the operators' squared errors.
    seen, measured
        Root of the mean of squared errors over the samples that operators were measured on, and over others.
    """

    products: int
    partitions: int
    predicted: float
    seen: float
    measured: float


def prepare(model: Any, calibration: Sequence[Sample], records: Path, threads: int) -> Network:
    """Calibrate it, measure its operators' errors, and cover it."""
    plain = load(model)
    graph = read_graph(plain)
    reference = ReferenceRun(plain, graph, threads)
    module = calibrated(plain, graph, (reference.on(sample) for sample in calibration))
    graph = read_graph(module)
    wanted = {*_ENGINES.values(), _REST}
    found = {b.name: b for b in available_backends("cpu", (FLOAT32, BF16, INT8)) if b.name in wanted}
    with RecordDatabase(records) as database:
        errors = sensitivities(
            module, graph, found, calibration, threads, database, Reporter(), list((*_ENGINES, INT8))
        )
    problem = SearchProblem(
        graph=graph,
        candidates=enumerate_candidates(graph, {n: b for n, b in found.items() if n != _ENGINES[BF16]}),
        cost_table=CostTable(lambda asked: [Cost(1.0)] * len(asked)),
        priorities={name: backend.priority for name, backend in found.items()},
    )
    cover = single_backend(DijkstraSearcher(), problem, found.values())[_ENGINES[FLOAT32]]
    return Network(module, graph, found, cover.candidates, errors, threads)


def placement(network: Network, rng: np.random.Generator) -> list[CandidatePartition]:
    """The cover with random cuts, precisions, and products in eight bits."""
    share = rng.random() ** 2  # few at low errors, where budgets are
    chosen: list[CandidatePartition] = []
    for candidate in network.cover:
        if candidate.backend not in _ENGINES.values():
            chosen.append(candidate)
            continue
        for inside in cut(list(candidate.sub_graph.inside), rng):
            backend = str(rng.choice(list(_ENGINES.values())))
            able = network.backends[backend].int8_nodes(network.graph, inside)
            products = IndexSet(i for i in able if rng.random() < share and np.isfinite(network.errors.of(i, INT8)))
            part = replace(candidate, sub_graph=SubGraph(network.graph, inside), backend=backend)
            chosen.append(replace(part, composites=((INT8, products),)) if products else part)
    return chosen


def cut(nodes: Sequence[int], rng: np.random.Generator) -> list[IndexSet]:
    """Nodes in topological order in one part or two: each part of a convex set is convex then."""
    if len(nodes) < 2 or rng.random() >= _CUT:
        return [IndexSet(nodes)]
    at = int(rng.integers(1, len(nodes)))
    return [IndexSet(nodes[:at]), IndexSet(nodes[at:])]


def predicted(network: Network, chosen: Sequence[CandidatePartition]) -> float:
    """By the operators' errors."""
    squared = (network.errors.squared(c, network.backends[c.backend].precision) for c in chosen if c.backend != "host")
    return float(np.sqrt(sum(squared)))


def measured(found: Sequence[Outputs], expected: Sequence[Outputs]) -> float:
    """Root of the mean over samples of the squared error, as errors of operators are measured."""
    each = [max(relative_l2(a, b)) for a, b in zip(found, expected, strict=True)]
    return float(np.sqrt(np.mean(np.square(each))))


def statistics(points: Sequence[Point], of: str = "measured") -> dict[str, float]:
    """Rank correlation, and the median and the 5th and 95th percentile of measured (`of`) over predicted errors; of
    those that have both.
    """
    both = [(p.predicted, getattr(p, of)) for p in points if p.predicted > 0 and np.isfinite(getattr(p, of))]
    if len(both) < 3:
        return {"points": len(both)}
    ours, right = np.array(both).T
    low, middle, high = np.quantile(right / ours, [0.05, 0.5, 0.95])
    rank = float(spearmanr(ours, right).statistic)
    return {"points": len(both), "rank": rank, "median": float(middle), "low": float(low), "high": float(high)}


def judge(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """All placements of a network, JSON-ready."""
    configure_threads(options.threads)
    model = build(name)
    work = options.work / name
    work.mkdir(parents=True, exist_ok=True)
    specs = input_specs(load(model))
    calibration, unseen = (
        read_samples([dict(sample) for sample in made_samples.samples_of(model, options.samples, seed)], specs)
        for seed in (made_samples.CALIBRATION, made_samples.UNSEEN)
    )
    network = prepare(model, calibration, work / "records.db", options.threads)
    reference = ReferenceRun(network.module, network.graph, options.threads)
    several = [*calibration, *unseen]
    expected = [reference.on(sample).outputs for sample in several]
    rng = np.random.default_rng(options.seed)
    halves = slice(len(calibration)), slice(len(calibration), None)
    points: list[Point] = []
    failures: list[str] = []
    with PlanRunner(
        network.module,
        network.graph,
        network.backends,
        options.threads,
        several[0],
        lambda: expected[0],
        Reporter(),
        EndToEnd(),
    ) as runner:
        for _ in range(options.placements):
            chosen = execution_order(network.graph, placement(network, rng))
            outputs = runner.outputs(chosen, several)
            runner.forget([chosen])
            if isinstance(outputs, Cost):
                failures.append(outputs.reason)
                continue
            products = sum(len(nodes) for c in chosen for label, nodes in c.composites if label == INT8)
            seen, other = (measured(outputs[part], expected[part]) for part in halves)
            points.append(Point(products, len(chosen), predicted(network, chosen), seen, other))
    return {
        "network": name,
        "samples": options.samples,
        "seed": options.seed,
        **origin(),
        "statistics": statistics(points),
        "seen": statistics(points, "seen"),
        "failures": failures,
        "points": [asdict(point) for point in points],
    }


def markdown(results: Sequence[Mapping[str, Any]]) -> str:
    """A row for each network: of samples that errors were not measured on, and of those that they were."""
    lines = [[r["network"], str(r["statistics"]["points"]), *map(said, (r["statistics"], r["seen"]))] for r in results]
    return table.rows(["network", "placements", "other samples: rank, ratio", "the same samples: rank, ratio"], lines)


def said(found: Mapping[str, float]) -> str:
    """Rank correlation, and the median of measured over predicted errors with what 90% are between."""
    if "rank" not in found:
        return "too few"
    return f"{found['rank']:.2f}, {found['median']:.2f} ({found['low']:.2f} to {found['high']:.2f})"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="by default the ten, and the five held out")
    parser.add_argument("--placements", type=int, default=100)
    parser.add_argument("--samples", type=int, default=8, help="that errors are measured on, and as many that judge")
    parser.add_argument("--seed", type=int, default=0, help="of the placements")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--folder", type=Path, default=Path("build/precision-errors"), help="of the results")
    parser.add_argument("--work", type=Path, default=Path("build/precision-work"), help="of the records")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    results = []
    for name in options.networks or [*WORKLOADS, *HELD_OUT]:
        path = options.folder / f"{name}.json"
        if not path.exists():
            result = judge(name, options)
            with replacing(path) as partial:
                partial.write_text(json.dumps(result) + "\n")
        results.append(json.loads(path.read_text()))
        print(markdown(results[-1:]), flush=True)
    print(markdown(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
