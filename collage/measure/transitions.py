"""Transition costs: the time to leave a partition of one backend and enter one of another, measured per ordered pair.

Two equal convolutions follow each other, on backends x and y. The transition x to y costs the time beyond
the mean of x followed by x and y followed by y: the call, and the change from one thread pool to the other.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations, product
from pathlib import Path

from collage.backends.base import Backend
from collage.compile.rewrite import apply
from collage.cost import Cost
from collage.graph.candidates import CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.description import describe_module, structure_hash
from collage.graph.from_relax import read_graph
from collage.graph.index_set import IndexSet
from collage.graph.sub_graph import SubGraph
from collage.measure.artifact import Artifact
from collage.measure.builder import run_all
from collage.measure.end_to_end import measure_plans, prepare_plan
from collage.measure.probe import two_convolutions
from collage.measure.protocol import Protocol
from collage.measure.reference import ReferenceRun
from collage.measure.runner import Measurement
from collage.measure.statistics import Summary
from collage.progress import Reporter
from collage.records import Record, RecordDatabase
from collage.records.key import transition_key
from collage.runtime.device_info import describe_device
from collage.runtime.threads import default_threads

#: Seconds for one pair to compile.
_TIMEOUT_S = 300.0


def transition_costs(
    backends: Sequence[Backend],
    threads: int,
    records: RecordDatabase,
    protocol: Protocol,
    reporter: Reporter,
    measure: bool = True,
) -> dict[tuple[str, str], float]:
    """Seconds for each ordered pair of different backends, from the records where they are there, else measured and
    recorded; with `measure=False`, pairs that are not in the records are left out.

    A difference inside the confidence interval counts as zero.
    """
    pairs = list(permutations(backends, 2))
    structure = structure_hash(describe_module(two_convolutions()))
    device = describe_device(backends[0].device) if backends else None
    keys = {(a.name, b.name): transition_key(structure, a, b, device, threads, protocol) for a, b in pairs if device}
    known = records.costs(keys.values())
    if measure and any(key not in known for key in keys.values()):
        reporter.stage("measuring transitions", None)
        for pair, cost in _measure(backends, threads, protocol).items():
            records.put(Record.of(keys[pair], cost, label=f"transition {pair[0]} -> {pair[1]}"))
            known[keys[pair]] = cost
    return {pair: known[key].seconds for pair, key in keys.items() if key in known and known[key].is_finite}


def _measure(backends: Sequence[Backend], threads: int, protocol: Protocol) -> dict[tuple[str, str], Cost]:
    module = two_convolutions()
    graph = read_graph(module)
    run = ReferenceRun(module, graph, threads)
    found: dict[tuple[str, str], Measurement] = {}
    with tempfile.TemporaryDirectory(prefix="collage-") as name:
        folder = Path(name)
        pairs = {f"{a.name}-{b.name}": (a, b) for a, b in product(backends, repeat=2)}
        plans = [_Pair(a, b, threads, folder / label) for label, (a, b) in pairs.items()]
        built = dict(zip(pairs, run_all(_compile, plans, default_threads(), _TIMEOUT_S), strict=True))
        artifacts = {label: plan for label, plan in built.items() if isinstance(plan, Artifact)}
        for label, reason in built.items():
            if isinstance(reason, str):
                found[pairs[label][0].name, pairs[label][1].name] = Measurement(reason=reason)
        measured = measure_plans(artifacts, run.inputs, run.outputs, protocol, threads, folder)
        found.update({(pairs[label][0].name, pairs[label][1].name): m for label, m in measured.items()})
    return {(a.name, b.name): _difference(found, a.name, b.name) for a, b in permutations(backends, 2)}


@dataclass(frozen=True)
class _Pair:
    """The probe with its first half on one backend and its second on another, to be compiled to a folder."""

    first: Backend
    second: Backend
    threads: int
    folder: Path


def _compile(pair: _Pair) -> Artifact:
    module = two_convolutions()
    graph = read_graph(module)
    cover = [_candidate(graph, 0, pair.first), _candidate(graph, 1, pair.second)]
    partitioned = apply(module, graph, cover, {b.name: b for b in (pair.first, pair.second)})
    return prepare_plan(partitioned, [pair.first, pair.second], pair.threads, pair.folder)


def _difference(found: dict[tuple[str, str], Measurement], a: str, b: str) -> Cost:
    together, alone = found[a, b], (found[a, a], found[b, b])
    if not all(m.valid for m in (together, *alone)):
        return Cost.invalid("; ".join(m.reason for m in (together, *alone) if not m.valid))
    both = Summary.of(together.samples)
    single = [Summary.of(m.samples) for m in alone]
    spread = both.spread + sum(s.spread for s in single) / 2
    seconds = both.median - sum(s.median for s in single) / 2
    return Cost(seconds if seconds > spread else 0.0, spread, both.count, together.reason)


def _candidate(graph: DataflowGraph, half: int, backend: Backend) -> CandidatePartition:
    nodes = list(graph.coverable)
    middle = len(nodes) // 2
    return CandidatePartition(SubGraph(graph, IndexSet(nodes[:middle] if half == 0 else nodes[middle:])), backend.name)
