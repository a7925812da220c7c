"""Sessions: what a machine was slower by in each stretch of measuring.

On a shared machine all that is measured in one hour takes a tenth longer than in another. What was measured in several
sessions tells by how much: the logarithm of a latency is what the workload takes plus what the session adds (a block
design, Fisher 1935), and both are found by polishing (Tukey 1977): the mean of a workload over its sessions, and the
median of a session over its workloads, in turns. Blocks that were measured in one session only, between repeated ones,
are so brought to the level of the others. Then the same is done for the minutes of each session.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np

from collage.records import Record

#: Seconds without a measurement after which the next one belongs to another session.
_PAUSE_S = 900.0
#: Length of a part of a session, in seconds.
_PART_S = 150.0
#: A session or a part of one with fewer workloads that were measured in others, too, is left as it is.
_LINKS = 30
_ROUNDS = 50


def leveled(pairs: Sequence[tuple[Hashable, Record]]) -> list[Record]:
    """The records, in their order, as if all sessions had been equally fast: their mean level is kept.

    Parameters
    ----------
    pairs: what tells workloads apart, and a record of one. Backends, devices and numbers of threads are leveled apart.
    """
    result = [record for _, record in pairs]
    rows: dict[Hashable, list[int]] = defaultdict(list)
    for row, record in enumerate(result):
        if record.seconds:
            rows[record.key.device, record.key.threads, record.key.backend].append(row)
    for chosen in rows.values():
        taken = [result[row] for row in chosen]
        workloads = numbered([pairs[row][0] for row in chosen])
        values = np.log([record.seconds or 1.0 for record in taken])
        excess = np.zeros(len(chosen))
        for sessions in (stretches(taken, _PAUSE_S), stretches(taken, _PAUSE_S, _PART_S)):
            excess += _excess(workloads, sessions, values - excess)
        for row, much in zip(chosen, excess.tolist(), strict=True):
            if much:
                record = result[row]
                result[row] = replace(record, seconds=float((record.seconds or 0.0) * np.exp(-much)))
    return result


def _excess(workloads: np.ndarray, sessions: np.ndarray, values: np.ndarray) -> np.ndarray:
    """By how much (of the logarithm) the session of each record was slower than the mean of all."""
    seen = np.unique(np.column_stack([workloads, sessions]), axis=0)
    repeated = (np.bincount(seen[:, 0]) > 1)[workloads]
    linked = np.bincount(sessions[repeated], minlength=sessions.max() + 1) >= _LINKS
    effects = np.zeros(len(linked))
    used = np.flatnonzero(repeated & linked[sessions])
    if not len(used):
        return np.asarray(effects[sessions])
    which, where, told = workloads[used], sessions[used], values[used]
    count = np.maximum(np.bincount(which), 1)
    for _ in range(_ROUNDS):
        of_workload = np.bincount(which, told - effects[where]) / count
        rest = told - of_workload[which]
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
