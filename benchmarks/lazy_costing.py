"""How much has to be costed: `python -m benchmarks.lazy_costing --records records.db [NETWORK or FILE.onnx ...]`.

Recorded costs are taken for the truth. Every network is searched twice, with eager and with lazy costing; nothing but
transitions that have no record is measured. The loss is what the lazily found plan costs more, by recorded costs. A
workload without a record is of unknown cost, and both searches treat it so: the column says how many there were.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.workloads import NAMES, WORKLOADS, build
from collage.backends.base import Backend
from collage.backends.resolve import resolve_backends
from collage.cost.cost import Cost
from collage.cost.estimator import Workload
from collage.frontend import load
from collage.graph.candidates import HOST, CandidatePartition
from collage.graph.from_relax import read_graph
from collage.graph.working_set import working_set
from collage.measure.transitions import transition_costs
from collage.measure.workloads import WorkloadFactory
from collage.progress import Reporter
from collage.records import RecordDatabase
from collage.rules.base import PartitionSpec
from collage.rules.gather import gather_candidates
from collage.search import CostTable, SearchProblem
from estimators.cached import CachedEstimator
from searchers.dijkstra import DijkstraSearcher


@dataclass(frozen=True)
class Row:
    """One network, costed lazily: counts of workloads are of distinct ones; seconds are of searching."""

    network: str
    candidates: int
    workloads: int
    unknown: int
    costed: int
    rounds: int
    eager_s: float
    lazy_s: float
    same: bool
    loss: float


class Replay:
    """One network with the recorded costs of its candidates."""

    def __init__(self, model: Any, backends: Mapping[str, Backend], threads: int, records: RecordDatabase) -> None:
        module = load(model)
        self.graph = read_graph(module)
        self.candidates = gather_candidates(
            self.graph, [PartitionSpec(b.partition_rule, n) for n, b in backends.items()]
        )
        factory = WorkloadFactory(module, self.graph, backends, threads, working_set=working_set(self.graph))
        self.workload = {c: factory.of(c) for c in self.candidates if c.backend != HOST}
        different = list(dict.fromkeys(self.workload.values()))
        self.costs = dict(zip(different, CachedEstimator(records).estimate(different), strict=True))
        self.transitions = transition_costs(list(backends.values()), threads, records, Reporter())
        self.priorities = {name: backend.priority for name, backend in backends.items()}
        self.asked: set[Workload] = set()
        self.rounds = 0

    def problem(self) -> SearchProblem:
        """The problem, of which nothing is costed yet."""
        self.asked, self.rounds = set(), 0
        return SearchProblem(
            self.graph,
            self.candidates,
            CostTable(self._estimate, self.workload.__getitem__),
            self.transitions,
            self.priorities,
        )

    def _estimate(self, candidates: Sequence[CandidatePartition]) -> list[Cost]:
        self.rounds += 1
        self.asked.update(self.workload[c] for c in candidates)
        return [self.costs[self.workload[c]] for c in candidates]


def compare(name: str, replay: Replay, margin: float) -> Row:
    begin = time.perf_counter()
    eager = DijkstraSearcher().search(replay.problem())
    middle = time.perf_counter()
    lazy = DijkstraSearcher(costing="lazy", bound_margin=margin).search(replay.problem())
    end = time.perf_counter()
    return Row(
        network=name,
        candidates=len(replay.workload),
        workloads=len(replay.costs),
        unknown=sum(cost.is_unknown for cost in replay.costs.values()),
        costed=len(replay.asked),
        rounds=replay.rounds,
        eager_s=middle - begin,
        lazy_s=end - middle,
        same=lazy.candidates == eager.candidates,
        loss=lazy.cost.seconds / eager.cost.seconds - 1.0,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(NAMES), help="names of workloads, or ONNX files")
    parser.add_argument("--records", required=True, help="database of recorded costs")
    parser.add_argument("--backends", default="tvm,openvino,onnxruntime")
    parser.add_argument("--threads", type=int, default=2, help="that the costs were recorded with")
    parser.add_argument("--margin", type=float, default=DijkstraSearcher().bound_margin)
    options = parser.parse_args()
    backends = resolve_backends(options.backends.split(","))
    title = f"Lazy costing on recorded costs, margin {options.margin:.0%}; shares are of distinct workloads"
    table = Table(title=title)
    for column in (
        "network",
        "candidates",
        "workloads",
        "no record",
        "costed",
        "rounds",
        "same plan",
        "loss",
        "search",
    ):
        table.add_column(column, justify="left" if column == "network" else "right")
    console = Console(width=130)
    with RecordDatabase(options.records) as records:
        for wanted in options.networks:
            console.print(f"{wanted} ...", style="dim")
            model = build(wanted) if wanted in WORKLOADS else wanted
            row = compare(Path(wanted).stem, Replay(model, backends, options.threads, records), options.margin)
            table.add_row(
                row.network,
                f"{row.candidates:,}",
                f"{row.workloads:,}",
                f"{row.unknown:,}",
                f"{row.costed:,} ({row.costed / row.workloads:.0%})",
                str(row.rounds),
                "yes" if row.same else "no",
                f"{row.loss:.2%}",
                f"{row.eager_s:.1f} s, lazily {row.lazy_s:.1f} s",
            )
    console.print(table)


if __name__ == "__main__":
    main()
