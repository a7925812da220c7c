"""Sessions: by how much a machine was slower in each stretch of measuring.

On a shared machine all latencies of one hour are a tenth longer than those of another. Workloads that were measured in
several sessions show by how much. The logarithm of a latency is an effect of the workload plus one of the session (a
block design, Fisher 1935). Both are found by polishing (Tukey 1977): the mean of a workload over its sessions, and the
median of a session over its workloads, alternately. Blocks that were measured in one session only, between repeated
ones, are thereby brought to the level of the others. Then the same is done for the minutes of each session.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np

from collage.records import Record, RecordKey

#: Seconds without a measurement after which the next one belongs to another session.
_PAUSE_S = 900.0
#: Length of a part of a session, in seconds.
_PART_S = 150.0
#: A session, or a part of one, that shares fewer workloads with others is left as it is.
_LINKS = 30
_ROUNDS = 50


def leveled(pairs: Sequence[tuple[Hashable, Record]]) -> list[Record]:
    """The records, in their order, as if all sessions had been equally fast: their mean level is kept.

    The effect of a session is estimated from all backends together first, so that one which was measured in some
    sessions only comes to the level of the others; then from each alone, because neighbours do not slow all of them
    alike.

    Parameters
    ----------
    pairs
        What identifies a workload, its backend included, and a record of it. Devices and numbers of threads are leveled
        separately.
    """
    result = [record for _, record in pairs]
    for together in _rows_by(result, lambda key: (key.device, key.threads)):
        excess = _excess_of([pairs[row] for row in together])
        members = [result[row] for row in together]
        for positions in _rows_by(members, lambda key: key.backend):
            chosen = np.array(positions)
            excess[chosen] += _excess_of([pairs[together[i]] for i in positions], excess[chosen])
        for row, much in zip(together, excess.tolist(), strict=True):
            if much:
                record = result[row]
                result[row] = replace(record, seconds=float((record.seconds or 0.0) * np.exp(-much)))
    return result


def _rows_by(records: Sequence[Record], of: Callable[[RecordKey], Hashable]) -> list[list[int]]:
    """The rows of records that have a latency, grouped by `of` their keys."""
    rows: dict[Hashable, list[int]] = defaultdict(list)
    for row, record in enumerate(records):
        if record.seconds:
            rows[of(record.key)].append(row)
    return list(rows.values())


def _excess_of(pairs: Sequence[tuple[Hashable, Record]], known: np.ndarray | float = 0.0) -> np.ndarray:
    """By how much (of the logarithm, beyond what is `known`) the session and the minutes of each record were slower."""
    records = [record for _, record in pairs]
    workloads = numbered([workload for workload, _ in pairs])
    values = np.log([record.seconds or 1.0 for record in records]) - known
    excess = np.zeros(len(records))
    for sessions in (stretches(records, _PAUSE_S), stretches(records, _PAUSE_S, _PART_S)):
        excess += _excess(workloads, sessions, values - excess)
    return excess


def _excess(workloads: np.ndarray, sessions: np.ndarray, values: np.ndarray) -> np.ndarray:
    """By how much (of the logarithm) the session of each record was slower than the mean of all."""
    seen = np.unique(np.column_stack([workloads, sessions]), axis=0)
    repeated = (np.bincount(seen[:, 0]) > 1)[workloads]
    linked = np.bincount(sessions[repeated], minlength=sessions.max() + 1) >= _LINKS
    effects = np.zeros(len(linked))
    used = np.flatnonzero(repeated & linked[sessions])
    if not len(used):
        return np.asarray(effects[sessions])
    which, where, measured = workloads[used], sessions[used], values[used]
    count = np.maximum(np.bincount(which), 1)
    for _ in range(_ROUNDS):
        of_workload = np.bincount(which, measured - effects[where]) / count
        rest = measured - of_workload[which]
        for session in np.unique(where):
            effects[session] = np.median(rest[where == session])
        effects[linked] -= np.average(effects[linked], weights=np.bincount(where, minlength=len(linked))[linked])
    return np.asarray(effects[sessions])


def stretches(records: Sequence[Record], pause_s: float, longest_s: float = np.inf) -> np.ndarray:
    """A number for each record, which those share that were taken without a longer pause (seconds) between them, and
    within so many seconds.
    """
    times = np.array([datetime.fromisoformat(record.timestamp).timestamp() for record in records])
    numbers = np.zeros(len(times), dtype=int)
    number, begin = 0, times.min(initial=np.inf)
    before = begin
    for row in np.argsort(times, kind="stable"):
        if times[row] - before > pause_s or times[row] - begin > longest_s:
            number, begin = number + 1, times[row]
        numbers[row], before = number, times[row]
    return numbers


def numbered(keys: Sequence[Hashable]) -> np.ndarray:
    """A number for each key, in the order in which they appear."""
    order: dict[Hashable, int] = {}
    return np.array([order.setdefault(key, len(order)) for key in keys])
