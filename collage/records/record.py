"""Record: one measurement, with all that is needed to use it again, to judge it, and to learn from it.

One measurement is an observation: what is stored, and what one line of a benchmark log says. All observations of a key
make the record that look-ups give (`collage.records.aggregate`). Both have the same fields; docs/RECORDS.md lists them,
with units.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import platform
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from functools import cache
from typing import Any, Literal

import msgspec

from collage.cost.cost import Cost
from collage.errors import RecordsError
from collage.records.key import RecordKey, canonical_json, field_errors, require_fields, tvm_version

#: Version of the fields of a record, of the database and of the benchmark log. Any change of the fields raises it.
SCHEMA_VERSION = 2
#: What version 1 did not have: nobody knows in which session those were measured, or what the machine was like.
SINCE_2: Mapping[str, Any] = {"session": "", "conditions": {}}

Status = Literal["ok", "invalid"]
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00")


def now() -> str:
    """The time in UTC, as records write it: ISO 8601 with microseconds, so that the order of texts is that of times."""
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")


@cache
def process_session() -> str:
    """The session of what this process measures: 16 hexadecimal digits that no other process has."""
    return uuid.uuid4().hex[:16]


def software_versions(backend_version: str = "") -> dict[str, str]:
    """Versions of what took part in a measurement."""
    found = {"python": platform.python_version(), "tvm": tvm_version()}
    for name, distribution in (("collage", "collage-tvm"), ("numpy", "numpy"), ("tvm_ffi", "apache-tvm-ffi")):
        found[name] = _installed(distribution)
    return {**found, "backend": backend_version} if backend_version else found


@cache
def _installed(distribution: str) -> str:
    """Its version. It is read from disk, which takes 5 ms, once for thousands of records."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


@dataclass(frozen=True)
class Record:
    """One measurement.

    Attributes
    ----------
    key
        All that the cost depends on.
    status
        "ok", or "invalid" when the backend could not build or run it, or gave wrong numbers.
    seconds
        Median latency; None when invalid.
    spread
        Half-width of the confidence interval of the median, in seconds.
    samples
        Number of timed samples behind the median.
    timings
        The samples themselves, in seconds to five digits, in the order in which they were taken; may be left out.
    reason
        Why it is invalid, or why measuring stopped.
    label
        A short name for people.
    operators
        Operator names in execution order.
    description
        The workload's structure as a JSON object, from which features can be computed later; may be left out.
    device
        The machine, as `DeviceInfo.as_dict` describes it; may be left out.
    versions
        Of Python, TVM, Collage, the backend and so on.
    timestamp
        When it was measured, UTC, as `now()` writes it. For people: no look-up goes by it.
    session
        Which tuning run it was measured in; "" where that is not known.
    conditions
        What the machine was like during the samples (`collage.cost.disturbance`); empty where that is not known.
    """

    key: RecordKey
    status: Status
    seconds: float | None
    spread: float = 0.0
    samples: int = 0
    timings: tuple[float, ...] = ()
    reason: str = ""
    label: str = ""
    operators: tuple[str, ...] = ()
    description: Mapping[str, Any] | None = field(default=None, hash=False)
    device: Mapping[str, Any] | None = field(default=None, hash=False)
    versions: Mapping[str, str] = field(default_factory=software_versions, hash=False)
    timestamp: str = field(default_factory=now)
    session: str = field(default_factory=process_session)
    conditions: Mapping[str, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.status not in ("ok", "invalid"):
            raise RecordsError(f"the status of a record is 'ok' or 'invalid', not {self.status!r}")
        if (self.status == "ok") != (self.seconds is not None):
            raise RecordsError(f"a record has seconds exactly when its status is ok: {self.status}, {self.seconds}")
        latencies = (self.spread, *self.timings, *(() if self.seconds is None else (self.seconds,)))
        if not all(_is_number(value) and math.isfinite(value) and value >= 0 for value in latencies):
            raise RecordsError("seconds, spread and timings of a record are finite and not negative")
        if type(self.samples) is not int or self.samples < 0:
            raise RecordsError(f"samples of a record is how many there were, not {self.samples!r}")
        if not all(_is_number(value) and math.isfinite(value) for value in self.conditions.values()):
            raise RecordsError(f"conditions of a record are finite numbers, not {dict(self.conditions)!r:.80}")
        if not _is_time(self.timestamp):
            raise RecordsError(f"a timestamp reads like 2026-01-31T12:00:00.000000+00:00, not {self.timestamp!r:.80}")

    @classmethod
    def of(
        cls,
        key: RecordKey,
        cost: Cost,
        *,
        timings: Sequence[float] = (),
        label: str = "",
        operators: Sequence[str] = (),
        description: Mapping[str, Any] | None = None,
        device: Mapping[str, Any] | None = None,
        session: str | None = None,
        conditions: Mapping[str, float] | None = None,
    ) -> Record:
        """The record of a cost that was just measured, stamped with the time, the versions and, where none is given,
        the session of this process.

        Raises
        ------
        RecordsError
            The cost is Unknown: there is nothing to record.
        """
        if cost.is_unknown:
            raise RecordsError(f"an unknown cost cannot be recorded: {label or key.structure}")
        return cls(
            key=key,
            status="invalid" if cost.is_invalid else "ok",
            seconds=None if cost.is_invalid else float(cost.seconds),
            spread=float(cost.spread),
            samples=cost.samples,
            timings=tuple(_rounded(t) for t in timings),
            reason=cost.reason.encode("utf-8", "replace").decode(),  # a child's output may hold bytes that are no text
            label=label,
            operators=tuple(operators),
            description=None
            if description is None
            else json.loads(canonical_json(description)),  # as it will come back
            device=None if device is None else json.loads(canonical_json(device)),
            versions=software_versions(key.backend_version),
            session=process_session() if session is None else session,
            conditions={name: float(value) for name, value in (conditions or {}).items()},
        )

    @property
    def cost(self) -> Cost:
        """The recorded cost, Invalid with its reason where the backend failed."""
        return cost_of(self.status, self.seconds, self.spread, self.samples, self.reason)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready: one line of a benchmark log."""
        return {**vars(self), "key": self.key.as_dict(), "conditions": dict(self.conditions)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Record:
        """The inverse of `as_dict`. Raises RecordsError when a field is missing, unknown or of the wrong type."""
        require_fields(values, _NAMES, "a record")
        key = RecordKey.from_dict(values["key"])
        with field_errors("a record"):
            return msgspec.convert({**values, "key": key}, cls)

    def to_json(self) -> str:
        """One line of a benchmark log, without its line feed. Raises RecordsError when the description is not JSON."""
        return canonical_json(self.as_dict())


_NAMES = tuple(f.name for f in fields(Record))


def _rounded(seconds: float) -> float:
    """To five significant digits: far finer than any sample repeats, and a third of the text."""
    return float(f"{seconds:.5g}")


def cost_of(status: str, seconds: float | None, spread: float, samples: int, reason: str) -> Cost:
    """The cost that a record's fields stand for."""
    if status == "invalid" or seconds is None:
        return Cost.invalid(reason)
    return Cost(seconds, spread, samples, reason)


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:  # a thirteenth month
        return False
    return _TIMESTAMP.fullmatch(text) is not None


def _is_number(value: object) -> bool:
    return type(value) in (int, float)
