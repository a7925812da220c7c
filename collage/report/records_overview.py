"""What a records database holds, counted in one pass over its observations."""

from __future__ import annotations

import re
import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import groupby
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


@dataclass
class Repeated:
    """Keys of a backend with several observations that are ok.

    Attributes
    ----------
    keys, in_several_sessions
        How many, and how many of them were measured in several sessions.
    deviations
        Of each latency from the median of its key, as a share of it.
    held
        How many lie no farther from the median than their own 95% interval reaches.
    """

    keys: int = 0
    in_several_sessions: int = 0
    deviations: array[float] = field(default_factory=lambda: array("d"))
    held: int = 0

    def add(self, seconds: Sequence[float], spreads: Sequence[float], sessions: int) -> None:
        """One key."""
        middle = median(seconds)
        self.keys += 1
        self.in_several_sessions += sessions > 1
        self.deviations.extend(abs(each / middle - 1.0) for each in seconds)
        self.held += sum(abs(each - middle) <= spread for each, spread in zip(seconds, spreads, strict=True))


class _Latencies:
    """Of candidates, all until the end, since what belongs to one key lies apart: numbers only, 24 bytes of each."""

    def __init__(self) -> None:
        self._key, self._seconds, self._spread, self._session = array("l"), array("d"), array("d"), array("i")
        self._session_numbers: dict[str, int] = {}

    def add(self, key: int, record: Record) -> None:
        self._key.append(key)
        self._seconds.append(record.seconds or 0.0)
        self._spread.append(record.spread)
        self._session.append(self._session_numbers.setdefault(record.session, len(self._session_numbers)))

    def repeated(self, backend_of: Mapping[int, str]) -> dict[str, Repeated]:
        """By the backends of the keys' numbers."""
        found: dict[str, Repeated] = {}
        ordered = sorted(range(len(self._key)), key=self._key.__getitem__)
        for key, positions in groupby(ordered, key=self._key.__getitem__):
            each = list(positions)
            if len(each) > 1:
                seconds, spreads = ([column[i] for i in each] for column in (self._seconds, self._spread))
                found.setdefault(backend_of[key], Repeated()).add(
                    seconds, spreads, len({self._session[i] for i in each})
                )
        return found


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
        Of candidates, by backend.
    """

    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    backends: Counter[tuple[str, str]] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)
    ages: Counter[tuple[str, str]] = field(default_factory=Counter)
    sessions: dict[str, Session] = field(default_factory=dict)
    hosts: dict[str, Host] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    repeated: dict[str, Repeated] = field(default_factory=dict)

    @property
    def observations(self) -> int:
        return self.kinds.total()


def overview(observations: Iterable[Record], now: datetime | None = None) -> Overview:
    """Count observations; ages are those at `now`."""
    found, moment = Overview(), now or datetime.now(timezone.utc)
    keys: dict[str, int] = {}
    backend_of: dict[int, str] = {}
    latencies = _Latencies()
    for record in observations:
        key, digest = record.key, record.key.digest
        found.kinds[key.kind, record.status] += 1
        found.ages[age_of(record.timestamp, moment), key.kind] += 1
        host = str((record.device or {}).get("host", ""))
        found.sessions.setdefault(record.session, Session(host)).add(record)
        _add_host(found.hosts.setdefault(host, Host()), record)
        if digest not in keys:
            keys[digest] = len(keys)
            found.records[key.kind] += 1
        if record.status == "invalid":
            _add_failure(found.failures, record)
        if key.kind == "candidate":
            found.backends[key.backend, record.status] += 1
            if record.seconds:
                backend_of[keys[digest]] = sys.intern(key.backend)
                latencies.add(keys[digest], record)
    found.repeated = latencies.repeated(backend_of)
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


def totals(counts: Mapping[tuple[str, str], int]) -> list[tuple[str, int]]:
    """By the first of each pair, the largest first."""
    found: Counter[str] = Counter()
    for (name, _), count in counts.items():
        found[name] += count
    return found.most_common()
