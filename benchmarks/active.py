"""How few measurements a plan needs: `python -m benchmarks.active --records records.db [NAME ...]`.

Candidates are not measured here, their records are replayed. Each network is left out in turn; a cost model is trained
on the records of the others (or read, where `benchmarks.estimators --keep` left it; or one model is taken for all, such
as one that ships, and adapted to the machine of the records), and `ActiveEstimator` is given the recorded costs where
it would measure. The loss is what its plan costs more than the plan by all recorded costs, added up from recorded
costs. With `--end-to-end`, on the machine of the records, plans that differ run interleaved: those that were searched,
and those that ship after `collage.partition` has confirmed and corrected each of the two against the same contestants,
which is what users get. Goal: at most 1%, with at most 20% of the measurements.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.estimators.networks import (
    ELSEWHERE,
    Key,
    Network,
    belongings_of,
    key_of,
    leave_out,
    measured_here,
    recorded_candidates,
)
from benchmarks.estimators.regret import end_to_end
from benchmarks.workloads import NAMES
from collage.api.partitioner import partition
from collage.backends.resolve import resolve_backends
from collage.cost.cost import Cost
from collage.cost.estimator import CostEstimator, Workload
from collage.cost.transition import Pair, Transition
from collage.graph.candidates import CandidatePartition
from collage.records import Record
from collage.runtime.threads import configure_threads
from collage.search import CostTable, Searcher, SearchProblem
from estimators.active import ActiveEstimator
from estimators.cost_model.model import CostModel
from estimators.replay import ReplayEstimator
from searchers.dijkstra import DijkstraSearcher


class Recorded(CostEstimator):
    """The mean of what was recorded; keeps what it was asked for.

    Parameters
    ----------
    records
        Of candidates.
    between
        Recorded seconds per ordered pair of backends.
    """

    uses_device = False

    def __init__(self, records: Mapping[Key, Record], between: Mapping[Pair, Transition]) -> None:
        self.records = records
        self.between = between
        self.asked: set[Workload] = set()
        self.rounds = 0

    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        self.asked.update(workloads)
        self.rounds += 1
        known = [self.records.get(key_of(w)) for w in workloads]
        return [Cost.unknown("not recorded") if record is None else record.cost for record in known]

    def transitions(self, backends: Sequence[str], threads: int) -> Mapping[Pair, Transition]:
        return self.between


def problem_of(network: Network, estimator: CostEstimator) -> SearchProblem:
    """The network's search problem; with bounds where the estimator has them."""

    def bounds(asked: Sequence[CandidatePartition]) -> list[tuple[float, float]] | None:
        return estimator.bounds([network.workloads[c] for c in asked])

    return SearchProblem(
        network.graph,
        network.candidates,
        CostTable(
            lambda asked: estimator.estimate([network.workloads[c] for c in asked]), network.workloads.get, bounds
        ),
        estimator.transitions(list(network.backends), network.threads) or {},
        {name: backend.priority for name, backend in network.backends.items()},
    )


def shipped(network: Network, estimator: CostEstimator) -> tuple[CandidatePartition, ...]:
    """The placement that `collage.partition` answers with, confirmed and corrected by runs of its own."""
    with tempfile.TemporaryDirectory(prefix="collage-bench-") as folder:
        plan = partition(
            network.module,
            list(network.backends.values()),
            estimator=estimator,
            records=Path(folder) / "records.db",
            threads=network.threads,
            effort="thorough",
        )
    return plan.placement(network.graph)


def compare(
    network: Network,
    model: CostModel,
    budget: Mapping[str, Any],
    records: Mapping[Key, Record],
    transitions: Mapping[Pair, Transition],
    run: bool,
    searcher: Searcher | None = None,
) -> list[str]:
    """A row of the table: the plan by a few of the records, against that by all of them.

    Parameters
    ----------
    budget
        Parameters of the estimator.
    searcher
        Of the plan by a few; None is Dijkstra's as it is.
    """
    measured, everything = Recorded(records, transitions), Recorded(records, transitions)
    (device,) = {record.key.device for record in records.values()}

    def active() -> ActiveEstimator:
        return ActiveEstimator(model, measured=measured, device=device, **budget)

    found = (searcher or DijkstraSearcher()).search(problem_of(network, active()))
    recorded = problem_of(network, everything)
    best = DijkstraSearcher().search(recorded)
    loss = recorded.partitioning(found.candidates).cost.seconds / best.cost.seconds - 1.0
    total, count = len(set(network.workloads.values())), len(measured.asked)
    row = [network.name, f"{total}", f"{count} ({count / total:.0%})", f"{measured.rounds}", f"{loss:.2%}"]
    if not run:
        return row
    if set(found.candidates) == set(best.candidates):  # and so goes on alike
        return [*row, "the same", "the same"]
    searched = end_to_end(network, found.candidates, best.candidates)
    ships = end_to_end(network, shipped(network, active()), shipped(network, everything))
    return [*row, *(f"{ratio:.3f} ({low:.3f} to {high:.3f})" for ratio, low, high in (searched, ships))]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(NAMES), help="tested; all of the benchmark are left out")
    parser.add_argument(
        "--records", type=Path, nargs="+", required=True, help="databases or benchmark logs; their mean is the truth"
    )
    parser.add_argument("--designed", type=Path, nargs="+", default=[], help="those of designed blocks, to train on")
    parser.add_argument(
        "--belongings", type=Path, default=Path("build/networks.json"), help="cache of what belongs to each network"
    )
    parser.add_argument(
        "--models", type=Path, help="folder of models that `benchmarks.estimators --keep` has saved; or one for all"
    )
    parser.add_argument("--end-to-end", action="store_true", help="run the plans too")
    parser.add_argument("--backends", default="tvm,openvino,onnxruntime")
    parser.add_argument("--threads", type=int, default=2, help="that the costs were recorded with")
    parser.add_argument("--share", type=float, default=ActiveEstimator().share, help="of workloads that are measured")
    parser.add_argument("--least", type=int, default=0, help="how many are, whatever the share")
    parser.add_argument("--most", type=int, help="how many are at most")
    parser.add_argument("--patience", type=int, help="of the searcher; 0 is none; by default its own")
    options = parser.parse_args(arguments)
    configure_threads(options.threads)
    backends = resolve_backends(options.backends.split(","))
    others = NAMES if options.models is None else ()
    belongings = [belongings_of(name, backends, options.threads, options.belongings)[0] for name in others]
    records = recorded_candidates([*options.records, *options.designed], options.threads)
    designed = frozenset(recorded_candidates(options.designed, options.threads)) if options.designed else frozenset()
    transitions = ReplayEstimator(options.records).transitions(list(backends), options.threads)
    run = options.end_to_end and measured_here(records)
    budget = {"share": options.share, "least": options.least, "most": options.most}
    searcher = DijkstraSearcher() if options.patience is None else DijkstraSearcher(patience=options.patience or None)
    columns = ("network", "workloads", "measured", "batches", "loss", "searched / by records", "ships / by records")
    table = Table(*columns, title="Active costing, replayed from records")
    console = Console(width=100)
    for name in options.networks:
        console.print(f"{name} ...", style="dim")
        network = Network(name, backends, options.threads)
        if options.models is not None:
            model = CostModel.load(options.models / f"{name}.json.gz" if options.models.is_dir() else options.models)
        else:
            fold = leave_out(network, belongings, records, designed)
            model = CostModel().fit(fold.training, fold.groups, fold.designed)
        row = compare(network, model, budget, records, transitions, run, searcher)
        table.add_row(*row)
        console.print(" ".join(row), style="dim")
    console.print(table)
    if options.end_to_end and not run:
        console.print(ELSEWHERE)


if __name__ == "__main__":
    main()
