"""Latencies: end-to-end latencies of placements for searchers that go by them, comparable from call to call.

Placements are timed by turns with an anchor, the first placement that was ever asked for, and what is told is the
anchor's first latency times the median of the ratios of runs that followed each other: a machine that has become
slower in between has become so for both. Every latency is recorded before the next batch starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from collage.backends.base import Backend
from collage.candidates import CandidatePartition
from collage.confirm import plan_cost
from collage.cost import Cost
from collage.device import describe
from collage.measure.plan_runner import PlanRunner
from collage.measure.runner import Measurement
from collage.measure.statistics import paired_ratio
from collage.recall import cover_of
from collage.records import Record, RecordDatabase, RecordKey
from collage.records.key import digest_of, plan_key
from collage.search import Partitioning

#: Placements that are loaded into the timing process at once, besides the anchor: each holds all weights.
BATCH = 6
#: Fewer rounds in common than this are no basis for a ratio of pairs.
_PAIRS = 6

Cover = tuple[CandidatePartition, ...]


class Latencies:
    """Callable: partitionings -> latencies, in seconds (`SearchProblem.measure_latencies`)."""

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
        known = self.database.costs(keys.values())
        found = {cover: known[key] for cover, key in keys.items() if key in known}
        missing = [cover for cover in keys if cover not in found and cover != anchor]
        batches = [missing[i : i + BATCH] for i in range(0, len(missing), BATCH)]
        for batch in batches or ([] if anchor in found else [[]]):
            costs = self._measure(batch, anchor, found.get(anchor))
            for cover, cost in costs.items():
                self.database.put(Record.of(keys[cover], cost, label="placement", device=describe().as_dict()))
            self.runner.forget(batch)
            found.update(costs)
        return [found[cover] for cover in covers]

    def _measure(self, batch: Sequence[Cover], anchor: Cover, reference: Cost | None) -> dict[Cover, Cost]:
        placements = {"the first placement": anchor} | {f"placement {i + 1}": cover for i, cover in enumerate(batch)}
        by_name = self.runner.measure(placements, "running placements")
        measured = {cover: by_name[name] for name, cover in placements.items()}
        known = reference or plan_cost(measured[anchor])
        others = {cover: _relative(measured[cover], measured[anchor], known) for cover in batch}
        return {anchor: known, **others}

    def _key(self, cover: Cover, anchor: Cover) -> RecordKey:
        structure = digest_of({"network": self.network, "cover": cover_of(cover), "anchor": cover_of(anchor)})
        return plan_key(structure, list(self.backends.values()), describe(), self.runner.threads, self.runner.protocol)


def _relative(measurement: Measurement, anchor: Measurement, reference: Cost) -> Cost:
    """A latency, told as the anchor's first latency times the ratio to the anchor now."""
    cost = plan_cost(measurement)
    now = plan_cost(anchor)
    if not (cost.is_finite and now.is_finite and reference.is_finite):
        return cost
    count = min(len(measurement.samples), len(anchor.samples))
    if count < _PAIRS:
        ratio, spread = cost.seconds / now.seconds, cost.spread / now.seconds
    else:
        ratio, low, high = paired_ratio(measurement.samples[:count], anchor.samples[:count])
        spread = (high - low) / 2
    return Cost(reference.seconds * ratio, reference.seconds * spread, cost.samples, cost.reason)
