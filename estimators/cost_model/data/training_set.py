"""Training set: which records are used, how much each counts, and which belong to one network.

Records do not name the network that they come from. A tuning run measures one network without a longer pause, so
records are grouped by the pauses between them. One network taken for two groups makes intervals a little optimistic,
two networks taken for one make them coarser; neither makes a prediction wrong.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from collage.backends.code import equivalent_defaults
from collage.cost.estimator import Configurations
from collage.errors import CollageError
from collage.measure.protocol import whatever_evicted, whatever_sampled
from collage.records import Record
from collage.records.key import digest_of
from estimators.cost_model.data.repeats import one_of_each
from estimators.cost_model.data.sessions import numbered, stretches

#: Fewer are no training set.
LEAST = 30
#: Seconds without a measurement after which the next one belongs to another tuning run.
PAUSE_S = 45.0
#: Relative error that a latency has from one run to the next, beyond what its own samples show.
_REPRODUCIBLE = 0.06
#: No larger relative spread is believed.
_LARGEST_SPREAD = 0.5
#: Relative deviation of one sample.
_ONE_SAMPLE = 0.2


@dataclass(frozen=True)
class TrainingSet:
    """Records to learn from.

    Attributes
    ----------
    records
        Valid candidates with a description, oldest first, of one device and one measuring protocol.
    log_seconds
        Natural logarithm of their latencies.
    weights
        What each counts: the inverse of the variance of its logarithm; their mean is 1.
    groups
        A number for each: records of one network share it, and so do all of designed blocks.
    designed
        Bool, which are of designed blocks.
    ignored
        Why others were left out -> how many.
    """

    records: tuple[Record, ...]
    log_seconds: np.ndarray
    weights: np.ndarray
    groups: np.ndarray
    designed: np.ndarray
    ignored: dict[str, int]

    @property
    def fingerprint(self) -> str:
        """Changes when a record, or its latency, does."""
        lines = sorted(f"{r.key.digest} {r.seconds!r}" for r in self.records)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def training_set(
    records: Iterable[Record],
    groups: Sequence[object] | None = None,
    designed: Sequence[bool] | None = None,
    configurations: Configurations = "newest",
) -> TrainingSet:
    """Choose, weigh and group.

    Left out: plans and transitions, Invalid records (rules and builds decide whether a backend takes a candidate, not
    latencies), records without a description, zero latencies, those of other versions and configurations of their
    backend than `configurations` asks for, and those of networks that keep more or less in the caches than most do
    (`evict_bytes` of their protocol). Records of one workload that was measured several times count once, with the
    mean.

    Parameters
    ----------
    records
        In any order.
    groups
        The network of each record; None groups them by the pauses between them.
    designed
        Which records are of blocks that belong to no network; None for none of them.
    configurations
        "newest" takes, of each backend, records of the version and configuration of its newest record, and of
        configurations declared equivalent to that (`collage.backends.code`); "all" takes those of every version.

    Raises
    ------
    CollageError
        Nothing, or too little, is left; or the records are of several devices or measuring protocols.
    """
    everything = list(records)
    for what, given in (("groups", groups), ("marks of designed blocks", designed)):
        if given is not None and len(given) != len(everything):
            raise CollageError(f"there are {len(everything)} records but {len(given)} {what}: give one for each record")
    named = list(groups) if groups is not None else [None] * len(everything)
    marked = list(designed) if designed is not None else [False] * len(everything)
    facts = zip(named, marked, strict=True)
    about_each = {record.key: about for record, about in zip(everything, facts, strict=True)}
    merged = one_of_each((record.key, record) for record in everything).values()
    ordered = sorted(((r, about_each[r.key]) for r in merged), key=lambda pair: (pair[0].timestamp, pair[0].key.digest))
    ignored: dict[str, int] = {}
    current = {r.key.backend: _built_by(r) for r, _ in ordered if not _why_not(r)}
    kept: list[tuple[Record, tuple[object, bool]]] = []
    for record, about in ordered:
        why = _why_not(record)
        if not why and configurations == "newest" and current[record.key.backend] != _built_by(record):
            why = "older backend"
        if why:
            ignored[why] = ignored.get(why, 0) + 1
        else:
            kept.append((record, about))
    measured = Counter(_measured_how(record) for record, _ in kept)
    commonest = max(measured, key=lambda protocol: (measured[protocol], protocol), default="")
    alike = {p for p in measured if whatever_evicted(p) == whatever_evicted(commonest)}
    if others := alike - {commonest}:
        ignored["another working set"] = sum(measured[protocol] for protocol in others)
        kept = [(record, about) for record, about in kept if _measured_how(record) not in others]
    _require_enough(len(kept), len(everything), ignored)
    chosen = tuple(record for record, _ in kept)
    _require_one("devices", {r.key.device for r in chosen}, "train on the records of one machine")
    _require_one("measuring protocols", {_measured_how(r) for r in chosen}, "train on records that were measured alike")
    marks = np.array([mark for _, (_, mark) in kept], dtype=bool)
    numbers = stretches(chosen, PAUSE_S) if groups is None else numbered([str(group) for _, (group, _) in kept])
    numbers[marks] = -1
    return TrainingSet(
        records=chosen,
        log_seconds=np.log([r.seconds for r in chosen if r.seconds]),
        weights=_weights(chosen),
        groups=numbers,
        designed=marks,
        ignored=ignored,
    )


def _measured_how(record: Record) -> str:
    """The measuring protocol, whatever number of samples it took."""
    return whatever_sampled(record.key.protocol)


def _built_by(record: Record) -> tuple[str, str]:
    """Version and configuration of the backend; equivalent configurations are one."""
    key = record.key
    return key.backend_version, _representative(key.backend, key.configuration)


@cache
def _representative(backend: str, configuration: str) -> str:
    classes = ([digest_of(each) for each in known] for known in equivalent_defaults(backend))
    return next((digests[0] for digests in classes if configuration in digests), configuration)


def _why_not(record: Record) -> str:
    if record.key.kind != "candidate":
        return f"a {record.key.kind}"
    if record.status != "ok":
        return "invalid"
    if not record.seconds:
        return "zero latency"
    if not record.description or not record.description.get("nodes"):
        return "no description"
    return ""


def _require_enough(kept: int, found: int, ignored: dict[str, int]) -> None:
    if kept >= LEAST:
        return
    left_out = ", ".join(f"{count} {why}" for why, count in sorted(ignored.items()))
    raise CollageError(
        f"a cost model needs at least {LEAST} measured candidates, and of {found} records {kept} can be used"
        + (f" ({left_out})" if left_out else "")
        + ": measure some networks with `collage tune` first"
    )


def _require_one(what: str, found: set[str], hint: str) -> None:
    if len(found) > 1:
        raise CollageError(f"the records are of {len(found)} {what} ({', '.join(sorted(found)):.200}): {hint}")


def _weights(records: Sequence[Record]) -> np.ndarray:
    """The inverse variance: of the median's own confidence interval (95%: 1.96 deviations), of a repetition, and of the
    uncertainty of a spread from few samples (of a candidate that was far slower than its alternatives).
    """
    relative = np.array([min(_LARGEST_SPREAD, r.spread / (1.96 * (r.seconds or 1.0))) for r in records])
    few = _ONE_SAMPLE**2 / np.maximum(1, [r.samples for r in records])
    weights = 1.0 / (_REPRODUCIBLE**2 + relative**2 + few)
    return np.asarray(weights / weights.mean())
