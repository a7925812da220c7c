"""Placement regret: what a placement that was searched with predicted costs loses against one with recorded costs.

Additive regret charges both with recorded costs. End-to-end regret runs both interleaved, and is the median of the
ratios of consecutive runs. A placement that is the same has none. How long the search by prediction takes is
measured too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.estimators.networks import Key, Network, enumerate_candidates, key_of
from benchmarks.latency_ratio import latency_ratio
from collage.backends.base import Backend
from collage.confirm.ties import simplest
from collage.cost.cost import Cost
from collage.cost.transition import Pair, Transition
from collage.graph.candidates import HOST, CandidatePartition, CandidateSet
from collage.graph.from_relax import read_graph
from collage.measure.workloads import WorkloadFactory
from collage.search import CostTable, Partitioning, SearchProblem
from collage.search.single_backend import single_backend
from searchers.dijkstra import DijkstraSearcher

Transitions = Mapping[Pair, Transition]


@dataclass(frozen=True)
class Regret:
    """Two placements of one network.

    Attributes
    ----------
    additive
        Recorded cost of the placement by prediction over that of the placement by records; at least 1 where searches
        are exact, infinite when it holds a candidate that its backend could not run.
    predicted, recorded
        The two placements.
    """

    additive: float
    predicted: Partitioning
    recorded: Partitioning

    @property
    def same(self) -> bool:
        return set(self.predicted.candidates) == set(self.recorded.candidates)


class Placements:
    """Searches placements of one network among the candidates that have a record.

    Parameters
    ----------
    costs
        The recorded ones.
    transitions
        Recorded seconds per ordered pair of backends.
    """

    def __init__(self, network: Network, costs: Mapping[Key, Cost], transitions: Transitions) -> None:
        self.network = network
        self.transitions = transitions
        known = [c for c in network.candidates if c.backend == HOST or network.keys[c] in costs]
        self.candidates = CandidateSet(known)
        self.share = len(known) / len(network.candidates)
        self._recorded = self._problem(costs)
        self._best: Partitioning | None = None

    def regret(self, predicted: Mapping[Key, float], spreads: Mapping[Key, float] | None = None) -> Regret:
        """The regret of the placement that predicted seconds lead to: the searched one, or a simpler one that ties.

        Parameters
        ----------
        predicted
            Of each candidate that has a record; NaN where nothing is known.
        spreads
            Half the widths of the intervals of those; None is exact.

        Raises
        ------
        CollageError
            The candidates that have a record do not cover the network.
        """
        if self._best is None:
            self._best = DijkstraSearcher().search(self._recorded)
        problem = self._problem({key: _cost(s, (spreads or {}).get(key, 0.0)) for key, s in predicted.items()})
        found = _unconfirmed(problem, self.network.backends)
        charged = self._recorded.partitioning(found.candidates).cost
        return Regret(charged.seconds / self._best.cost.seconds, found, self._best)

    def _problem(self, costs: Mapping[Key, Cost]) -> SearchProblem:
        network = self.network
        return SearchProblem(
            graph=network.graph,
            candidates=self.candidates,
            cost_table=CostTable(lambda asked: [costs[network.keys[c]] for c in asked], network.keys.get),
            transitions=self.transitions,
            priorities={name: backend.priority for name, backend in network.backends.items()},
        )


def end_to_end(
    network: Network, placement: Sequence[CandidatePartition], by_records: Sequence[CandidatePartition]
) -> tuple[float, float, float]:
    """Latency of a placement over that of the one by records, from interleaved runs: (median, low, high).

    Raises
    ------
    CollageError
        One of the two does not run, or gives wrong numbers.
    """
    if set(placement) == set(by_records):
        return 1.0, 1.0, 1.0
    return latency_ratio(network.module, network.graph, network.backends, network.threads, placement, by_records)


def partitioning_seconds(
    module: Any, backends: Mapping[str, Backend], threads: int, model: Any, transitions: Transitions
) -> dict[str, float]:
    """Seconds of each step of placing a module by prediction alone, in a process that is warm."""
    times = {}
    for _ in range(2):  # the first round warms up: imports, caches of TVM and of the model
        marks = [time.perf_counter()]
        graph = read_graph(module)
        candidates = enumerate_candidates(graph, backends)
        marks.append(time.perf_counter())
        factory = WorkloadFactory(module, graph, backends, threads)
        workloads = {c: factory.of(c) for c in candidates if c.backend != HOST}
        unique = list(dict.fromkeys(workloads.values()))
        for workload in unique:
            _ = workload.description
        marks.append(time.perf_counter())
        costs = {key_of(w): _cost(s, spread) for w, s, spread in zip(unique, *predictions(model, unique), strict=True)}
        marks.append(time.perf_counter())
        problem = SearchProblem(
            graph=graph,
            candidates=candidates,
            cost_table=CostTable(
                lambda asked, w=workloads, t=costs: [t[key_of(w[c])] for c in asked],  # type: ignore[misc]
                workloads.get,
            ),
            transitions=transitions,
            priorities={name: backend.priority for name, backend in backends.items()},
        )
        _unconfirmed(problem, backends)
        marks.append(time.perf_counter())
        steps = ("enumeration", "description", "prediction", "search")
        times = {step: b - a for step, a, b in zip(steps, marks, marks[1:], strict=False)}
    return {**times, "total": sum(times.values())}


def _unconfirmed(problem: SearchProblem, backends: Mapping[str, Backend]) -> Partitioning:
    """What the partitioner ships when nothing is run end to end."""
    alone = single_backend(DijkstraSearcher(), problem, backends.values())
    return simplest(problem, DijkstraSearcher().search(problem), alone)[1]


def predictions(model: Any, items: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Seconds, and half the widths of their intervals; those are 0 for a model that has none."""
    seconds = np.asarray(model.predict(items), dtype=float)
    interval = getattr(model, "predict_interval", None)
    if interval is None:
        return seconds, np.zeros(len(seconds))
    low, high = interval(items)
    return seconds, (np.asarray(high) - np.asarray(low)) / 2


def _cost(seconds: float, spread: float) -> Cost:
    return Cost.unknown("no prediction") if math.isnan(seconds) else Cost(float(seconds), float(spread))
