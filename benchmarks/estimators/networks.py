"""Which records belong to which network, and what a cost model may be trained on when that network is the test.

A network's records are those of its candidates. Whatever has the structure of one of them, measured for whichever
network, is not in the training set when that network is tested. Records of no network at all are variants that were
collected on purpose (`collage records collect`), and they may have been made around the tested network: those whose
operators (shapes aside) only the tested network has are left out as well. Records of designed blocks (`collage records
collect --designed`), which anybody can have without knowing the network, are those of certain logs.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.workloads import build
from collage.backends.base import Backend
from collage.backends.code import configuration_of
from collage.collect.variants import skeleton
from collage.cost.estimator import Workload
from collage.errors import RecordsError
from collage.frontend import load
from collage.graph.candidates import HOST, CandidatePartition, CandidateSet
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.from_relax import read_graph
from collage.measure.workloads import WorkloadFactory
from collage.records import Record, read_records
from collage.records.key import Composites
from collage.rules.base import PartitionSpec
from collage.rules.gather import gather_candidates
from collage.runtime.device_info import describe_device
from estimators.cost_model.data.repeats import one_of_each

#: What records of candidates are matched by, versions and configurations aside: structure, backend, composites.
Key = tuple[str, str, Composites]
#: Seconds between two records beyond which nobody was measuring.
_PAUSE_S = 60.0
NO_NETWORK = "none"
#: What is said in place of latencies end to end.
ELSEWHERE = "The records are of another machine, so no placement was run."


@dataclass(frozen=True)
class Belongings:
    """What records are attributed to a network by: structures and skeletons of all its candidates."""

    name: str
    structures: frozenset[str]
    skeletons: frozenset[str]


class Network:
    """One network with its candidates.

    Parameters
    ----------
    name
        A workload of the benchmark.
    backends
        Name -> backend.
    threads
        Number of threads of the deployment.
    """

    def __init__(self, name: str, backends: Mapping[str, Backend], threads: int) -> None:
        self.name = name
        self.backends = backends
        self.threads = threads
        self.module: Any = load(build(name))
        self.graph = read_graph(self.module)
        self.candidates = enumerate_candidates(self.graph, backends)

    @cached_property
    def workloads(self) -> dict[CandidatePartition, Workload]:
        """The workload of each candidate; the host's are left out."""
        factory = WorkloadFactory(self.module, self.graph, self.backends, self.threads)
        return {c: factory.of(c) for c in self.candidates if c.backend != HOST}

    @cached_property
    def keys(self) -> dict[CandidatePartition, Key]:
        return {candidate: key_of(workload) for candidate, workload in self.workloads.items()}

    @cached_property
    def structures(self) -> frozenset[str]:
        return frozenset(workload.structure for workload in self.workloads.values())

    @cached_property
    def skeletons(self) -> frozenset[str]:
        """Of all its candidates (`collage.collect.variants.skeleton`)."""
        unique = {workload.structure: workload for workload in self.workloads.values()}
        return frozenset(skeleton(workload.description) for workload in unique.values())


def belongings_of(
    name: str, backends: Mapping[str, Backend], threads: int, cache: Path
) -> tuple[Belongings, Network | None]:
    """Looked up in a cache, a JSON file; else of the network, which is built, and comes along."""
    configured = {backend: [b.version(), configuration_of(b)] for backend, b in sorted(backends.items())}
    key = json.dumps([name, threads, configured], sort_keys=True)
    known = json.loads(cache.read_text()) if cache.exists() else {}
    if key in known:
        structures, skeletons = (frozenset(found) for found in known[key])
        return Belongings(name, structures, skeletons), None
    network = Network(name, backends, threads)
    known[key] = [sorted(network.structures), sorted(network.skeletons)]
    cache.parent.mkdir(parents=True, exist_ok=True)
    cache.write_text(json.dumps(known))
    return Belongings(name, network.structures, network.skeletons), network


def enumerate_candidates(graph: DataflowGraph, backends: Mapping[str, Backend]) -> CandidateSet:
    """Phases 1 and 2 of the partitioner."""
    return gather_candidates(graph, [PartitionSpec(backend.partition_rule, name) for name, backend in backends.items()])


def key_of(workload: Workload) -> Key:
    return workload.structure, workload.backend.name, tuple((label, tuple(at)) for label, at in workload.composites)


def recorded_candidates(sources: Iterable[Path], threads: int) -> dict[Key, Record]:
    """One record of each candidate, from databases and benchmark logs, measured with so many threads.

    Where there are several, the newest with the mean of their latencies (`estimators.cost_model.data.repeats`).

    Raises
    ------
    RecordsError
        A source cannot be read, there is nothing in it, or the records are of several devices or protocols.
    """
    found = dict(one_of_each(candidate_records(sources, threads)))
    for what in ("device", "protocol"):
        distinct = sorted({getattr(record.key, what) for record in found.values()})
        if len(distinct) != 1:
            raise RecordsError(
                f"records of one {what}, taken with {threads} threads, are needed; there are {distinct or 'none'}"
            )
    return found


def candidate_records(sources: Iterable[Path], threads: int) -> Iterator[tuple[Key, Record]]:
    """All records of candidates in databases and benchmark logs, measured with so many threads."""
    for source in sources:
        for record in read_records(source):
            key = record.key
            if key.kind == "candidate" and key.threads == threads and record.description is not None:
                yield (key.structure, key.backend, key.composites), record


def measured_here(records: Mapping[Key, Record]) -> bool:
    """Whether records are of this machine: what placements by another's take here says nothing of a cost model."""
    return {record.key.device for record in records.values()} == {describe_device().fingerprint}


@dataclass(frozen=True)
class Fold:
    """One network left out: what a model is trained on, and what it is tested on. Both hold valid records only.

    Attributes
    ----------
    groups
        Of each training record, the network that it belongs to (the first of several), or `NO_NETWORK`.
    designed
        Of each training record, whether it is of no network (`of_no_network`).
    """

    tested: str
    training: tuple[Record, ...]
    groups: tuple[str, ...]
    designed: tuple[bool, ...]
    test: tuple[Record, ...]


def leave_out(
    tested: Network,
    networks: Sequence[Network | Belongings],
    records: Mapping[Key, Record],
    designed: Collection[Key] = (),
) -> Fold:
    """The fold in which `tested`, one of `networks`, is the test.

    Parameters
    ----------
    tested, networks
        See above.
    records
        Of all networks, and of none.
    designed
        Which of them are of designed blocks: of these, only the structures of the tested network are left out.

    Raises
    ------
    RecordsError
        There is no valid record of the network, or none besides.
    """
    named = frozenset().union(*(network.structures for network in networks))
    elsewhere = frozenset().union(*(network.skeletons for network in networks if network.name != tested.name))
    keys = set(tested.keys.values())
    valid = {key: record for key, record in records.items() if record.status == "ok"}

    def may_train(key: Key, record: Record) -> bool:
        if record.key.structure in tested.structures:
            return False
        if key in designed or record.key.structure in named or record.description is None:
            return True
        kind = skeleton(record.description)
        return kind in elsewhere or kind not in tested.skeletons

    kept = {key: record for key, record in valid.items() if may_train(key, record)}
    training, groups = tuple(kept.values()), groups_of(kept.values(), networks)
    test = tuple(record for key, record in valid.items() if key in keys)
    if not training or not test:
        raise RecordsError(f"{tested.name}: {len(test)} valid records to test on, {len(training)} to train on")
    return Fold(tested.name, training, groups, of_no_network(kept, groups, designed), test)


def groups_of(records: Iterable[Record], networks: Sequence[Network | Belongings]) -> tuple[str, ...]:
    """The network that each record belongs to (the first of several), or `NO_NETWORK`."""
    owners = {structure: network.name for network in reversed(networks) for structure in network.structures}
    return tuple(owners.get(record.key.structure, NO_NETWORK) for record in records)


def of_no_network(keys: Iterable[Key], groups: Sequence[str], designed: Collection[Key]) -> tuple[bool, ...]:
    """Which records say nothing of how far off a model is on a network that it has not seen: those of designed blocks,
    and those that were taken for a network whose candidates they no longer are.
    """
    return tuple(key in designed or group == NO_NETWORK for key, group in zip(keys, groups, strict=True))


def recorded_tuning_seconds(network: Network, records: Mapping[Key, Record]) -> float:
    """What measuring the network's candidates took: the time from each record's predecessor, pauses left out."""
    keys = set(network.keys.values())
    ordered = sorted(records.items(), key=lambda item: item[1].timestamp)
    times = [datetime.fromisoformat(record.timestamp) for _, record in ordered]
    total = 0.0
    for (key, _), before, now in zip(ordered[1:], times, times[1:], strict=False):
        elapsed = (now - before).total_seconds()
        total += elapsed if key in keys and elapsed < _PAUSE_S else 0.0
    return total
