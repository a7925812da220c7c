"""Contest: plans and rivals of one network run as they will be deployed; recorded results are not measured again.

Results are recorded under keys that name all contestants of a run. A latency from another contest does not count,
because only latencies of the same rounds can be compared.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from collage.accuracy.budget import Budget, Verdict
from collage.annotations.precision import INT8
from collage.backends.base import Backend
from collage.confirm.confirmation import NOT_RUN, SEARCHED, UNTOUCHED, Confirmation, Contestant, contestant
from collage.confirm.finals import plan_of, run_finals
from collage.confirm.judges import leaves_final, leaves_race
from collage.confirm.launches import without_launches
from collage.confirm.starters import starters
from collage.cost.cost import Cost
from collage.deployed.messages import Watched
from collage.deployed.plan_runner import Entrant, Placement, PlanRunner, partition_seconds
from collage.deployed.race import Race
from collage.deployed.rivals import Rival
from collage.deployed.timeline import TimedCall, timeline
from collage.errors import CollageError
from collage.graph.candidates import HOST
from collage.graph.index_set import IndexSet
from collage.measure.host import measured_on
from collage.measure.sequential import eliminate
from collage.measure.statistics import Summary
from collage.records import Record, RecordDatabase, RecordKey
from collage.records.key import digest_of, plan_key
from collage.runtime.device_info import describe_device

#: What the anchor is called in later trials.
_ANCHOR = "the fastest of the first trial"
#: Whose partitions are watched: those of plans that take at most so many times as long as the fastest.
_WATCHED = 2.0
#: Seconds beyond which the call from Python is less than a hundredth of a latency.
_LONG_S = 5e-3


class Trial(msgspec.Struct, frozen=True):
    """A placement's first runs.

    Attributes
    ----------
    latency
        Of one call, on the machine as fast as it was in the first trial; Invalid or Unknown when it is out.
    partition_seconds, launch_seconds, timeline
        As of `Contestant`, on the machine as fast as it was in the first trial.
    """

    latency: Cost
    partition_seconds: tuple[float, ...] = ()
    launch_seconds: tuple[float, ...] = ()
    timeline: tuple[TimedCall, ...] = ()

    def scaled(self, factor: float) -> Trial:
        """With what was watched as on a machine that takes so many times as long."""
        return replace(
            self,
            partition_seconds=tuple(seconds * factor for seconds in self.partition_seconds),
            launch_seconds=tuple(seconds * factor for seconds in self.launch_seconds),
            timeline=tuple(call.scaled(factor) for call in self.timeline),
        )


class _Anchor(NamedTuple):
    """The placement that every later trial is compared with, and its latency in the first one, in seconds."""

    placement: Placement
    seconds: float


class _Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the record of a contestant says besides its latency: the trial, or how the contest ended. The latency is
    the record's.
    """

    trial: Trial | None = None
    contestant: Contestant | None = None
    ships: bool = False
    disturbed: float = 0.0


class Contest:
    """Placements of one network: tried, raced, decided.

    Parameters
    ----------
    network
        Hash of the network's structure.
    backends
        Name -> backend.
    runner
        Compiles and runs placements.
    rivals
        Engines that run the user's file by themselves.
    """

    def __init__(
        self,
        network: str,
        backends: Mapping[str, Backend],
        database: RecordDatabase,
        runner: PlanRunner,
        rivals: Sequence[Rival] = (),
    ) -> None:
        self.network = network
        self.backends = list(backends.values())
        self.database = database
        self.runner = runner
        self.rivals = {rival.name: rival for rival in rivals}
        self._anchor: _Anchor | None = None
        self._trials: dict[str, Trial] = {}

    def trial(self, placements: Mapping[str, Placement]) -> dict[str, Trial]:
        """A few rounds of each, beside the fastest one of the first trial, and what its partitions take inside it."""
        first = _first_names(placements)
        new = {name: placements[name] for cover, name in first.items() if cover not in self._trials}
        names = list(new)
        while names:
            # Where not all fit into memory they run in heats: the later ones beside the fastest of the first.
            size = max(1, self.runner.capacity - (self._anchor is not None))
            self._try({name: new[name] for name in names[:size]})
            names = names[size:]
        return {name: self._trials[digest_of(cover_of(placement))] for name, placement in placements.items()}

    def decide(self, placements: Mapping[str, Placement], trials: Mapping[str, Trial]) -> Confirmation:
        """Race those who did not lose in the trials; run what wins once more, on fresh samples, beside the rivals.

        Parameters
        ----------
        placements
            Name -> placement; of two names of one placement the first one counts, and the other one has its numbers.
        trials
            Of each.

        Raises
        ------
        CollageError
            Not one placement runs and gives the right numbers.
        """
        seconds = {name: t.latency.seconds for name, t in trials.items() if t.latency.is_finite}
        if not seconds:
            reasons = "; ".join(f"{name}: {trial.latency.reason}" for name, trial in trials.items())
            raise CollageError(f"no plan runs and gives the right numbers: {reasons}")
        first = _first_names(placements)
        ran = {name: seconds[name] for name in first.values() if name in seconds}
        engines = {name: p[0].backend for name in ran if (p := placements[name]) is not None and len(p) == 1}
        near = starters(ran, engines)[: max(1, self.runner.capacity - len(self.rivals))]
        twins = self._twins(ran).values()
        late = {name: trials[name].latency for name in ran if name in twins and name not in near}
        entrants = {**{name: placements[name] for name in [*near, *late]}, **self.rivals}
        confirmation = self._recalled(entrants) or self._run_contest(near, late, entrants)
        found = {c.name: c for c in confirmation.contestants}
        for name, placement in placements.items():
            representative = first[digest_of(cover_of(placement))]
            trial = trials[name]
            own = found.get(representative, Contestant(name, trial.latency))
            found[name] = replace(
                own,
                name=name,
                partition_seconds=trial.partition_seconds,
                launch_seconds=trial.launch_seconds,
                timeline=trial.timeline if name == confirmation.shipped else (),
            )
        return replace(confirmation, contestants=tuple(found.values()))

    def verdict(self, placement: Placement, budget: Budget, samples: str) -> Verdict:
        """How wrong a placement is on a budget's samples: infinitely where it does not run.

        Parameters
        ----------
        samples
            Digest of what the verdict depends on besides the placement: it is recorded, and recalled; "" does neither.
        """
        key = self._keys("verdict " + samples, {SEARCHED: placement})[SEARCHED] if samples else None
        known = self.database.get_many([key]) if key is not None else {}
        if key is not None and key in known:
            return msgspec.convert(known[key].description, Verdict)
        self.runner.reporter.stage("judging errors", None)
        outputs = self.runner.outputs(placement, budget.samples)
        if isinstance(outputs, Cost):
            return Verdict(math.inf, math.inf, len(budget.samples))
        verdict = budget.verdict(outputs)
        latency = self.runner.enter({SEARCHED: placement})[SEARCHED].latency
        if key is not None and math.isfinite(verdict.upper):
            self.database.put_many(
                [Record.of(key, Cost(latency), label=SEARCHED, description=msgspec.to_builtins(verdict))]
            )
        return verdict

    def _try(self, placements: Mapping[str, Placement]) -> None:
        anchor = self._anchor
        entrants = {**placements, **({} if anchor is None else {_ANCHOR: anchor.placement})}
        keys = self._keys("trial", entrants)
        known = self.database.get_many(keys[name] for name in placements)
        if len(known) == len(placements):
            recorded = {name: msgspec.convert(known[keys[name]].description, _Note) for name in placements}
            found = {
                name: replace(note.trial, latency=known[keys[name]].cost)
                for name, note in recorded.items()
                if note.trial is not None
            }
        else:
            self.runner.reporter.stage("running plans end to end", None)
            found = self._run_trial(placements, entrants)
            notes = {name: _Note(trial=replace(trial, latency=Cost.zero())) for name, trial in found.items()}
            self._record(keys, {name: trial.latency for name, trial in found.items()}, notes)
        self._trials.update((digest_of(cover_of(placements[name])), trial) for name, trial in found.items())
        if anchor is None and (finite := [name for name, trial in found.items() if trial.latency.is_finite]):
            best = min(finite, key=lambda name: found[name].latency.seconds)
            self._anchor = _Anchor(placements[best], found[best].latency.seconds)

    def _run_trial(self, placements: Mapping[str, Placement], entrants: Mapping[str, Placement]) -> dict[str, Trial]:
        entries = self.runner.enter(entrants)
        race = self.runner.race(entrants, self._rounds(self.runner.protocol.trial_rounds), eliminate)
        medians = {name: statistics.median(race.latencies(name)) for name, turns in race.samples.items() if turns}
        scale = self._anchor.seconds / medians[_ANCHOR] if self._anchor is not None and _ANCHOR in medians else 1.0
        found: dict[str, Trial] = {}
        for name, placement in placements.items():
            if name not in medians:
                found[name] = Trial(entries[name].problem or Cost.unknown(NOT_RUN))
                continue
            spread = Summary.of(race.latencies(name)).spread
            cost = Cost(medians[name] * scale, spread * scale, sum(map(len, race.samples[name])))
            watched = self._watched(name, placement, medians[name], min(medians.values()))
            found[name] = replace(watched.scaled(scale), latency=cost)
        return found

    def _watched(self, name: str, placement: Placement, latency: float, fastest: float) -> Trial:
        """What its partitions take; a single long one is the whole. Nothing of TVM's own build, and of what is too slow
        to teach anything.
        """
        nothing = Trial(Cost.unknown())
        if placement is None or latency > _WATCHED * fastest:
            return nothing
        devices = {backend.device for backend in self.backends}
        if devices == {"cpu"} and _partitions(placement) == 1 and latency > _LONG_S:
            return replace(nothing, partition_seconds=(latency,))
        self.runner.reporter.step(f"watching {name}", 0)
        watched = self.runner.watch(placement) or Watched((), ())
        parts = partition_seconds(watched.parts, placement)
        return replace(
            nothing,
            partition_seconds=parts if "cpu" in devices else without_launches(parts, latency),
            launch_seconds=partition_seconds(watched.launches, placement),
            timeline=timeline(watched.calls, int(_partitions(placement))),
        )

    def _recalled(self, entrants: Mapping[str, Entrant]) -> Confirmation | None:
        """The contest from the records, where all of it is there."""
        keys = self._keys("contest", entrants)
        known = self.database.get_many(keys.values())
        if len(known) < len(keys):
            return None
        notes = [msgspec.convert(known[key].description, _Note) for key in keys.values()]
        contestants = (
            replace(note.contestant, name=name, latency=known[keys[name]].cost)
            for name, note in zip(keys, notes, strict=True)
            if note.contestant is not None
        )
        shipped = next(name for name, note in zip(keys, notes, strict=True) if note.ships)
        return Confirmation(shipped, tuple(contestants), notes[0].disturbed)

    def _run_contest(
        self, near: Sequence[str], late: Mapping[str, Cost], entrants: Mapping[str, Entrant]
    ) -> Confirmation:
        """Those near race; those late, with the latencies of their trials, run if a rival shows that they should."""
        protocol, runner = self.runner.protocol, self.runner
        runner.reporter.stage("confirming end to end", None)
        partitions = {name: _partitions(entrants[name]) for name in [*near, *late]}
        usual = self._rounds(protocol.race_rounds)
        judge = partial(leaves_race, partitions=partitions, usual=usual, longest=protocol.longest)
        race = runner.race({name: entrants[name] for name in near}, protocol.longest * usual, judge)
        able = [name for name in near if race.samples.get(name)]
        if not able:
            entries = runner.enter(entrants)
            reasons = "; ".join(f"{name}: {problem.reason}" for name in near if (problem := entries[name].problem))
            raise CollageError(f"no plan runs and gives the right numbers: {reasons}")

        def run(names: Sequence[str]) -> Race:
            plans = {name: partitions[name] for name in names if name in partitions}
            usual = self._rounds(protocol.final_rounds)
            judge = partial(leaves_final, partitions=plans, usual=usual, longest=protocol.longest)
            return runner.race({n: entrants[n] for n in names}, protocol.longest * usual, judge)

        may_ship = {name: partitions[name] for name in [*able, *late]}
        shipped, final = run_finals(race, may_ship, self._twins(partitions), run)
        entries = runner.enter(entrants)
        contestants = []
        for name in entrants:
            problem = entries[name].problem
            fresh = bool(final.samples.get(name))
            if fresh or race.samples.get(name):
                contestants.append(
                    contestant(name, final if fresh else race, shipped, rival=name in self.rivals, fresh=fresh)
                )
            else:
                latency = problem or late.get(name) or Cost.unknown(NOT_RUN)
                contestants.append(Contestant(name, latency, rival=name in self.rivals))
        notes = {
            c.name: _Note(None, replace(c, latency=Cost.zero()), c.name == shipped, final.disturbed)
            for c in contestants
        }
        self._record(self._keys("contest", entrants), {c.name: c.latency for c in contestants}, notes)
        return Confirmation(shipped, tuple(contestants), final.disturbed)

    def _twins(self, plans: Collection[str]) -> dict[str, str]:
        """Name of each rival -> name of the plan that runs the same."""
        return {name: plan_of(rival.engine, plans) for name, rival in self.rivals.items()}

    def _rounds(self, usual: int) -> int:
        return self.runner.protocol.rounds(usual, self.runner.fastest)

    def _keys(self, kind: str, entrants: Mapping[str, Entrant]) -> dict[str, RecordKey]:
        info = describe_device(self.runner.device)
        covers = {name: _cover(entrant) for name, entrant in entrants.items()}
        together = sorted(map(digest_of, covers.values()))
        return {
            name: plan_key(
                digest_of({"network": self.network, "cover": cover, kind: together}),
                self.backends,
                info,
                self.runner.threads,
                self.runner.protocol,
            )
            for name, cover in covers.items()
        }

    def _record(self, keys: Mapping[str, RecordKey], latencies: Mapping[str, Cost], notes: Mapping[str, _Note]) -> None:
        """All at once: what is known of a contest is of one contest. What the machine is to blame for is not recorded,
        so that it is run again the next time.
        """
        device = measured_on(describe_device(self.runner.device))
        self.database.put_many(
            Record.of(keys[name], latency, label=name, description=msgspec.to_builtins(notes[name]), device=device)
            for name, latency in latencies.items()
            if not latency.is_unknown
        )


def cover_of(placement: Placement) -> Any:
    """Backend, nodes and labels of every partition, as plain data; of nodes in eight bits, which ones."""
    if placement is None:
        return UNTOUCHED
    return [[c.backend, list(c.sub_graph.inside), list(map(_label, c.composites))] for c in placement]


def _label(composite: tuple[str, IndexSet]) -> Any:
    label, nodes = composite
    return [label, *nodes] if label == INT8 else label


def _cover(entrant: Entrant) -> Any:
    if isinstance(entrant, Rival):
        return ["rival", entrant.engine, entrant.version, entrant.digest]
    return cover_of(entrant)


def _first_names(placements: Mapping[str, Placement]) -> dict[str, str]:
    """Digest of each different placement -> the first name that it has."""
    found: dict[str, str] = {}
    for name, placement in placements.items():
        found.setdefault(digest_of(cover_of(placement)), name)
    return found


def _partitions(entrant: Entrant) -> float:
    """The number of partitions; infinite where there is no placement."""
    if entrant is None or isinstance(entrant, Rival):
        return math.inf
    return sum(candidate.backend != HOST for candidate in entrant)
