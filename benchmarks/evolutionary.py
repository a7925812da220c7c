"""Evolution against additive costs: what running whole placements wins over Dijkstra's cover, network by network.

    python -m benchmarks.evolutionary [NAME ...] --records records.db --out evolutionary.jsonl

`collage.partition` runs with an `EvolutionarySearcher`, then its answer and Dijkstra's cover run again, interleaved.
The latencies that evolution chose by do not count: of forty noisy numbers the least is too small. What is reported is
the median ratio of runs that followed each other, with its confidence interval.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import onnx

import collage
from benchmarks.latency_ratio import latency_ratio
from benchmarks.workloads import NAMES, build
from collage.confirm.confirmation import SEARCHED
from collage.search import Partitioning, SearchProblem
from searchers.dijkstra import DijkstraSearcher
from searchers.evolutionary import EvolutionarySearcher

DIJKSTRA = "dijkstra"


class Watched(EvolutionarySearcher):
    """Remembers the problem that had hardware behind it, and the answer to it."""

    problem: SearchProblem
    found: Partitioning

    def search(self, problem: SearchProblem) -> Partitioning:
        found = super().search(problem)
        if problem.has_latencies:
            self.problem, self.found = problem, found
        return found


def bench(name: str, records: Path, time_limit_s: float, checkpoint: Path | None) -> dict[str, Any]:
    """Everything about one network, as one JSON-ready row; latencies in seconds."""
    searcher = Watched(time_limit_s=time_limit_s, checkpoint=checkpoint)
    with tempfile.TemporaryDirectory(prefix="collage-bench-") as folder:
        file = Path(folder) / f"{name}.onnx"
        onnx.save(build(name), str(file))
        started = time.monotonic()
        plan = collage.partition(str(file), searcher=searcher, records=records, effort="thorough")
        seconds = time.monotonic() - started
    incumbent = DijkstraSearcher().search(searcher.problem)
    found = searcher.found
    same = set(found.candidates) == set(incumbent.candidates)
    ratio = (1.0, 1.0, 1.0)
    if not same:
        graph, placements = searcher.problem.graph, (found.candidates, incumbent.candidates)
        ratio = latency_ratio(plan.module, graph, plan.backends, plan.threads, *placements)
    return {
        "network": name,
        "shipped": plan.choice,
        "ratio_to_dijkstra": dict(zip(("median", "low", "high"), ratio, strict=True)),
        "partitions": {SEARCHED: len(found.partitions), DIJKSTRA: len(incumbent.partitions)},
        "additive_cost_s": {SEARCHED: found.cost.seconds, DIJKSTRA: incumbent.cost.seconds},
        "tune_s": seconds,
        "notes": list(found.notes),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(NAMES))
    parser.add_argument("--records", type=Path, default=Path("build/bench-records.db"))
    parser.add_argument("--out", type=Path, default=Path("build/evolutionary.jsonl"))
    parser.add_argument("--time-limit", type=float, default=600.0, help="seconds of evolution per network")
    parser.add_argument("--checkpoints", type=Path, help="folder for checkpoints, to go on from when interrupted")
    arguments = parser.parse_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or NAMES:
        checkpoint = arguments.checkpoints / f"{name}.json" if arguments.checkpoints else None
        row = bench(name, arguments.records, arguments.time_limit, checkpoint)
        with arguments.out.open("a") as out:
            out.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
