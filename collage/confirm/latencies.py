"""Latencies: end-to-end latencies of placements, comparable from call to call, for searchers that run whole placements.

Placements are timed interleaved with an anchor, the first placement that was requested. The reported latency is the
anchor's first latency times the median of the ratios of runs that followed each other. If the machine has become slower
in between, it has become so for both, and the ratio stays. The spread is that of the ratio, so the anchor has none.
Every latency is recorded before the next batch starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from collage.backends.base import Backend
from collage.confirm.contest import cover_of
from collage.cost.cost import Cost
from collage.deployed.plan_runner import PlanRunner
from collage.deployed.race import Race
from collage.graph.candidates import CandidatePartition
from collage.measure.host import measured_on
from collage.measure.statistics import Summary, paired_ratio
from collage.records import Record, RecordDatabase, RecordKey
from collage.records.key import digest_of, plan_key
from collage.runtime.device_info import DeviceInfo, describe_device
from collage.search import Partitioning

#: Placements that run interleaved, besides the anchor: each holds all weights.
BATCH = 6
#: Rounds of a batch.
_ROUNDS = 7

Cover = tuple[CandidatePartition, ...]


class Latencies:
    """Callable: partitionings -> latencies, in seconds (`LatencyTable.measure`)."""

    def __init__(
        self, network: str, backends: Mapping[str, Backend], runner: PlanRunner, database: RecordDatabase
    ) -> None:
        self.network = network
        self.backends = backends
        self.runner = runner
        self.database = database
        self._anchor: Cover | None = None

    def __call__(self, partitionings: Sequence[Partitioning]) -> list[Cost]:
        covers = [p.candidates for p in partitionings]
        if not covers:
            return []
        if self._anchor is None:
            self._anchor = covers[0]
        anchor = self._anchor
        keys = {cover: self._key(cover, anchor) for cover in dict.fromkeys([anchor, *covers])}
        found = self._recorded(keys)
        missing = [cover for cover in keys if cover not in found and cover != anchor]
        batches = [missing[i : i + BATCH] for i in range(0, len(missing), BATCH)]
        for batch in batches or ([] if anchor in found else [[]]):
            found.update(self._measure(batch, anchor, found.get(anchor), keys))
        return [found[cover] for cover in covers]

    def again(self, partitionings: Sequence[Partitioning]) -> list[Cost]:
        """Run a few placements once more, interleaved (`LatencyTable.remeasure`).

        The first one is the anchor, and the others are relative to its present latency: these numbers can be compared
        with each other only. The records remember the result for the same placements.
        """
        covers = [p.candidates for p in partitionings]
        contest = sorted(digest_of(cover_of(cover)) for cover in covers)
        keys = {cover: self._key(cover, covers[0], contest) for cover in covers}
        found = self._recorded(keys)
        if len(found) < len(keys):
            found = self._measure(covers[1:], covers[0], None, keys)
        return [found[cover] for cover in covers]

    def _recorded(self, keys: Mapping[Cover, RecordKey]) -> dict[Cover, Cost]:
        known = self.database.costs(keys.values())
        return {cover: known[key] for cover, key in keys.items() if key in known}

    def _measure(
        self, batch: Sequence[Cover], anchor: Cover, reference: Cost | None, keys: Mapping[Cover, RecordKey]
    ) -> dict[Cover, Cost]:
        """The latencies of the batch and of the anchor, recorded under their keys."""
        placements = {"the first placement": anchor} | {f"placement {i + 1}": cover for i, cover in enumerate(batch)}
        self.runner.reporter.stage("running placements", None)
        race = self.runner.race(placements, _ROUNDS)
        entries = self.runner.enter(placements)
        own = {cover: entries[name].problem or _cost(race, name) for name, cover in placements.items()}
        first = next(iter(placements))
        known = reference or replace(own[anchor], spread=0.0)
        costs = {anchor: known}
        costs |= {
            c: _relative(race, name, own[c], first, own[anchor], known) for name, c in placements.items() if c in batch
        }
        for cover, cost in costs.items():
            if not cost.is_unknown:
                self.database.put(Record.of(keys[cover], cost, label="placement", device=measured_on(self._device())))
        self.runner.forget(batch)
        return costs

    def _key(self, cover: Cover, anchor: Cover, contest: Sequence[str] = ()) -> RecordKey:
        parts: dict[str, Any] = {"network": self.network, "cover": cover_of(cover), "anchor": cover_of(anchor)}
        if contest:
            parts["again with"] = list(contest)
        structure = digest_of(parts)
        backends = list(self.backends.values())
        return plan_key(structure, backends, self._device(), self.runner.threads, self.runner.protocol)

    def _device(self) -> DeviceInfo:
        return describe_device(self.runner.device)


def _cost(race: Race, name: str) -> Cost:
    summary = Summary.of(race.latencies(name))
    return Cost(summary.median, summary.spread, sum(map(len, race.samples[name])))


def _relative(race: Race, name: str, own: Cost, first: str, anchor: Cost, reference: Cost) -> Cost:
    """A latency as the anchor's first latency times the ratio to the anchor now."""
    if not (own.is_finite and anchor.is_finite and reference.is_finite):
        return own
    ratio, low, high = paired_ratio(race.latencies(name), race.latencies(first))
    return Cost(reference.seconds * ratio, reference.seconds * (high - low) / 2, own.samples)
