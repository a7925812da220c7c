"""Latency of one placement over another's, each as it is deployed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collage.backends.base import Backend
from collage.deployed.plan_runner import Placement, PlanRunner
from collage.deployed.protocol import EndToEnd
from collage.errors import CollageError
from collage.graph.dataflow_graph import DataflowGraph
from collage.measure.reference import ReferenceRun
from collage.measure.sequential import ratio
from collage.progress import Reporter

_ROUNDS = 21


def latency_ratio(
    module: Any,
    graph: DataflowGraph,
    backends: Mapping[str, Backend],
    threads: int,
    one: Placement,
    other: Placement,
) -> tuple[float, float, float]:
    """Latency of `one` over that of `other`, from rounds in which both took turns: (median, low, high).

    Raises
    ------
    CollageError
        One of the two does not run, or gives wrong numbers.
    """
    reference = ReferenceRun(module, graph, threads)
    placements = {"one": one, "other": other}
    with PlanRunner(
        module, graph, backends, threads, reference.inputs, lambda: reference.outputs, Reporter(), EndToEnd()
    ) as runner:
        race = runner.race(placements, _ROUNDS)
        for entry in runner.enter(placements).values():
            if entry.problem is not None:
                raise CollageError(f"a placement does not run: {entry.problem.reason}")
    found = ratio(race.latencies("one"), race.latencies("other"))
    return found.median, found.low, found.high
