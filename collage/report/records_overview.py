"""What a records database holds, counted in one pass over its observations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from statistics import median

from collage.cost.disturbance import LIMITS, was_disturbed
from collage.records import Record

#: Days, and what is not older than that.
_AGES = ((1, "a day"), (7, "a week"), (30, "a month"), (90, "3 months"), (365, "a year"))
FUTURE, OLDER = "in the future", "older than a year"
AGES = (FUTURE, *(f"up to {name}" for _, name in _AGES), OLDER)
#: Of reasons: what differs between two of one kind.
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d[\d.,]*(e[+-]?\d+)?", re.IGNORECASE)


@dataclass
class Session:
    """What was measured in one tuning run.

    Attributes
    ----------
    host
        Digest of the host, "" where none is known.
    observations, failed
        How many, and how many of them are Invalid.
    known, disturbed
        Of how many the conditions are known, and how many others disturbed.
    first, last
        Timestamps.
    beyond
        Condition -> how many observations it disturbed.
    """

    host: str
    observations: int = 0
    failed: int = 0
    known: int = 0
    disturbed: int = 0
    first: str = ""
    last: str = ""
    beyond: Counter[str] = field(default_factory=Counter)

    def add(self, record: Record) -> None:
        self.observations += 1
        self.failed += record.status == "invalid"
        self.known += bool(record.conditions)
        self.disturbed += was_disturbed(record.conditions)
        self.first = min(self.first or record.timestamp, record.timestamp)
        self.last = max(self.last, record.timestamp)
        self.beyond.update(name for name, limit in LIMITS.items() if record.conditions.get(name, 0.0) > limit)


@dataclass
class Host:
    """Where observations come from: how many, what the processor is, and in which sessions."""

    observations: int = 0
    models: set[str] = field(default_factory=set)
    sessions: set[str] = field(default_factory=set)
    threads: set[int] = field(default_factory=set)


@dataclass
class Failure:
    """A kind of failure: how often, of how many backends, and the reason of one."""

    count: int
    backends: Counter[str]
    example: str


@dataclass(frozen=True)
class Repeated:
    """A key with several observations that are ok.

    Attributes
    ----------
    backend
        Of the key.
    deviations
        Of each latency from their median, as a share of it.
    held
        How many lie no farther from the median than their own 95% interval reaches.
    sessions
        In how many sessions they were made.
    """

    backend: str
    deviations: tuple[float, ...]
    held: int
    sessions: int


@dataclass
class Overview:
    """What was counted.

    Attributes
    ----------
    kinds, backends
        (kind, or backend of a candidate; status) -> observations.
    records
        Kind -> keys.
    ages
        (one of `AGES`, kind) -> observations.
    sessions, hosts
        By name; "" where none is known.
    failures
        By what the reason says, without its numbers.
    repeated
        Of candidates.
    """

    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    backends: Counter[tuple[str, str]] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)
    ages: Counter[tuple[str, str]] = field(default_factory=Counter)
    sessions: dict[str, Session] = field(default_factory=dict)
    hosts: dict[str, Host] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    repeated: list[Repeated] = field(default_factory=list)

    @property
    def observations(self) -> int:
        return self.kinds.total()


def overview(observations: Iterable[Record], now: datetime | None = None) -> Overview:
    """Count observations; ages are those at `now`."""
    found, moment = Overview(), now or datetime.now(timezone.utc)
    keys: set[str] = set()
    latencies: dict[str, list[tuple[float, float, str]]] = {}
    backend_of: dict[str, str] = {}
    for record in observations:
        key, digest = record.key, record.key.digest
        found.kinds[key.kind, record.status] += 1
        found.ages[age_of(record.timestamp, moment), key.kind] += 1
        host = str((record.device or {}).get("host", ""))
        found.sessions.setdefault(record.session, Session(host)).add(record)
        _add_host(found.hosts.setdefault(host, Host()), record)
        if digest not in keys:
            keys.add(digest)
            found.records[key.kind] += 1
        if record.status == "invalid":
            _add_failure(found.failures, record)
        if key.kind == "candidate":
            found.backends[key.backend, record.status] += 1
            if record.seconds:
                backend_of[digest] = key.backend
                latencies.setdefault(digest, []).append((record.seconds, record.spread, record.session))
    found.repeated += [_repeated(backend_of[digest], each) for digest, each in latencies.items() if len(each) > 1]
    return found


def _add_host(host: Host, record: Record) -> None:
    host.observations += 1
    host.models.add(str((record.device or {}).get("model", "")))
    host.sessions.add(record.session)
    host.threads.add(record.key.threads)


def _add_failure(failures: dict[str, Failure], record: Record) -> None:
    found = failures.setdefault(kind_of_failure(record.reason), Failure(0, Counter(), record.reason))
    found.count += 1
    found.backends[record.key.backend] += 1


def kind_of_failure(reason: str) -> str:
    """`does not compile: error 17 in line 3` -> `does not compile`: what was tried, without numbers."""
    what = (reason.strip().splitlines() or [""])[0].partition(": ")[0]
    return _NUMBERS.sub("…", what)[:80] or "no reason is given"


def age_of(timestamp: str, now: datetime) -> str:
    """One of `AGES`."""
    days = (now - datetime.fromisoformat(timestamp)).total_seconds() / 86_400
    if days < 0:
        return FUTURE
    return next((f"up to {name}" for limit, name in _AGES if days <= limit), OLDER)


def _repeated(backend: str, each: list[tuple[float, float, str]]) -> Repeated:
    middle = median(seconds for seconds, _, _ in each)
    deviations = tuple(abs(seconds / middle - 1.0) for seconds, _, _ in each)
    held = sum(abs(seconds - middle) <= spread for seconds, spread, _ in each)
    return Repeated(backend, deviations, held, len({session for _, _, session in each}))


def totals(counts: Mapping[tuple[str, str], int]) -> list[tuple[str, int]]:
    """By the first of each pair, the largest first."""
    found: Counter[str] = Counter()
    for (name, _), count in counts.items():
        found[name] += count
    return found.most_common()
