"""How few measurements a plan needs: `python -m benchmarks.active --records records.db [NAME ...]`.

A replay: nothing is measured. Each network is left out in turn; a cost model is trained on the records of the others,
and `ActiveEstimator` is given the recorded costs where it would measure. The loss is what its plan costs more than the
plan by all recorded costs, added up from recorded costs; goal: at most 1%, with at most 20% of the measurements.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.estimator_networks import Network, leave_out, read_records
from benchmarks.workloads import NAMES
from collage.candidates import CandidatePartition
from collage.choose import resolve_backends
from collage.cost import Cost
from collage.estimate import CostEstimator, Workload
from collage.search import SearchProblem
from estimators.active import ActiveEstimator
from estimators.cost_model import CostModel
from estimators.replay import ReplayEstimator
from searchers.dijkstra import DijkstraSearcher


class Counting(CostEstimator):
    """Replays, and keeps what it was asked for."""

    def __init__(self, replay: CostEstimator) -> None:
        self.replay = replay
        self.asked: set[Workload] = set()
        self.rounds = 0

    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        self.asked.update(workloads)
        self.rounds += 1
        return self.replay.estimate(workloads)


def problem_of(network: Network, estimator: CostEstimator, transitions: dict[tuple[str, str], float]) -> SearchProblem:
    """The network's search problem; with bounds where the estimator has them."""

    def bounds(asked: Sequence[CandidatePartition]) -> list[tuple[float, float]] | None:
        return estimator.bounds([network.workloads[c] for c in asked])

    return SearchProblem(
        network.graph,
        network.candidates,
        lambda asked: estimator.estimate([network.workloads[c] for c in asked]),
        transitions,
        {name: backend.priority for name, backend in network.backends.items()},
        same_cost=network.workloads.get,
        bounds=bounds,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(NAMES), help="tested; all of the benchmark are left out")
    parser.add_argument("--records", type=Path, required=True, help="database or benchmark log of recorded costs")
    parser.add_argument("--backends", default="tvm,openvino,onnxruntime")
    parser.add_argument("--threads", type=int, default=2, help="that the costs were recorded with")
    parser.add_argument("--share", type=float, default=ActiveEstimator().share, help="of workloads that are measured")
    options = parser.parse_args()
    backends = resolve_backends(options.backends.split(","))
    networks = [Network(name, backends, options.threads) for name in NAMES]
    records = read_records([options.records], options.threads)
    replay = ReplayEstimator(options.records)
    transitions = replay.transitions(list(backends), options.threads)
    table = Table("network", "workloads", "measured", "batches", "loss", title="Active costing, replayed from records")
    console = Console(width=100)
    for network in networks:
        if network.name not in options.networks:
            continue
        console.print(f"{network.name} ...", style="dim")
        model = CostModel().fit(leave_out(network, networks, records).training)
        counting = Counting(replay)
        estimator = ActiveEstimator(model, share=options.share, measured=counting, device=model.device_)
        found = DijkstraSearcher().search(problem_of(network, estimator, transitions))
        recorded = problem_of(network, replay, transitions)
        best = DijkstraSearcher().search(recorded)
        loss = recorded.partitioning(found.candidates).cost.seconds / best.cost.seconds - 1.0
        total = len(set(network.workloads.values()))
        measured = len(counting.asked)
        table.add_row(
            network.name, f"{total}", f"{measured} ({measured / total:.0%})", f"{counting.rounds}", f"{loss:.2%}"
        )
    console.print(table)


if __name__ == "__main__":
    main()
