"""How few measurements a plan needs: `python -m benchmarks.active --records records.db [NAME ...]`.

Candidates are not measured here, their records are replayed. Each network is left out in turn; a cost model is trained
on the records of the others (or read, where `benchmarks.estimators --keep` left it), and `ActiveEstimator` is given the
recorded costs where it would measure. The loss is what its plan costs more than the plan by all recorded costs, added
up from recorded costs; with `--end-to-end` both plans run by turns, too. Goal: at most 1%, with at most 20% of the
measurements.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.estimator_networks import Key, Network, belongings_of, key_of, leave_out, read_records
from benchmarks.estimator_regret import Regret, end_to_end
from benchmarks.workloads import NAMES
from collage.candidates import CandidatePartition
from collage.choose import resolve_backends
from collage.cost import Cost
from collage.estimate import CostEstimator, Workload
from collage.records import Record
from collage.runtime.threads import configure_threads
from collage.search import SearchProblem
from estimators.active import ActiveEstimator
from estimators.cost_model import CostModel
from estimators.replay import ReplayEstimator
from searchers.dijkstra import DijkstraSearcher


class Recorded(CostEstimator):
    """The mean of what was recorded; keeps what it was asked for."""

    def __init__(self, records: Mapping[Key, Record]) -> None:
        self.records = records
        self.asked: set[Workload] = set()
        self.rounds = 0

    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        self.asked.update(workloads)
        self.rounds += 1
        known = [self.records.get(key_of(w)) for w in workloads]
        return [Cost.unknown("not recorded") if record is None else record.cost for record in known]


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
    parser.add_argument(
        "--records", type=Path, nargs="+", required=True, help="databases or benchmark logs; their mean is the truth"
    )
    parser.add_argument("--designed", type=Path, nargs="+", default=[], help="those of designed blocks, to train on")
    parser.add_argument(
        "--belongings", type=Path, default=Path("build/networks.json"), help="cache of what belongs to each network"
    )
    parser.add_argument("--models", type=Path, help="folder of models that `benchmarks.estimators --keep` has saved")
    parser.add_argument("--end-to-end", action="store_true", help="run the plans too")
    parser.add_argument("--backends", default="tvm,openvino,onnxruntime")
    parser.add_argument("--threads", type=int, default=2, help="that the costs were recorded with")
    parser.add_argument("--share", type=float, default=ActiveEstimator().share, help="of workloads that are measured")
    options = parser.parse_args()
    configure_threads(options.threads)
    backends = resolve_backends(options.backends.split(","))
    others = NAMES if options.models is None else ()
    belongings = [belongings_of(name, backends, options.threads, options.belongings)[0] for name in others]
    records = read_records([*options.records, *options.designed], options.threads)
    designed = frozenset(read_records(options.designed, options.threads)) if options.designed else frozenset()
    transitions = ReplayEstimator(options.records).transitions(list(backends), options.threads)
    columns = ("network", "workloads", "measured", "batches", "loss", "latency, 95% interval")
    table = Table(*columns, title="Active costing, replayed from records")
    console = Console(width=100)
    for name in options.networks:
        console.print(f"{name} ...", style="dim")
        network = Network(name, backends, options.threads)
        if options.models is not None:
            model = CostModel.load(options.models / f"{name}.json.gz")
        else:
            fold = leave_out(network, belongings, records, designed)
            model = CostModel().fit(fold.training, fold.groups, fold.designed)
        measured = Recorded(records)
        estimator = ActiveEstimator(model, share=options.share, measured=measured, device=model.device_)
        found = DijkstraSearcher().search(problem_of(network, estimator, transitions))
        recorded = problem_of(network, Recorded(records), transitions)
        best = DijkstraSearcher().search(recorded)
        loss = recorded.partitioning(found.candidates).cost.seconds / best.cost.seconds - 1.0
        total = len(set(network.workloads.values()))
        count = len(measured.asked)
        row = [name, f"{total}", f"{count} ({count / total:.0%})", f"{measured.rounds}", f"{loss:.2%}"]
        if options.end_to_end:
            ratio, low, high = end_to_end(network, Regret(1.0 + loss, found, best))
            row.append(f"{ratio:.3f} ({low:.3f} to {high:.3f})")
        table.add_row(*row)
        console.print(" ".join(row), style="dim")
    console.print(table)


if __name__ == "__main__":
    main()
