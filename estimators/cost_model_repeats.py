"""Records of one thing that was measured several times, as one.

On a shared machine a latency that is measured again comes out a tenth higher or lower, and small ones a quarter. The
errors of measurements that lie far apart in time are independent: their mean is nearer to the truth than the newest.
What whole sessions of measuring have in common is taken out before (`estimators.cost_model_sessions`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

import numpy as np

from collage.records import Record
from estimators.cost_model_sessions import leveled

_Key = TypeVar("_Key", bound=Hashable)


def one_of_each(records: Iterable[tuple[_Key, Record]]) -> Mapping[_Key, Record]:
    """The newest record of each key, with the geometric mean of the leveled latencies of all that have one, and the
    time of the oldest, which tells beside what it was measured.

    The newest says whether the backend can run it at all; one that it cannot has no latency.
    """
    found: dict[_Key, list[Record]] = defaultdict(list)
    ordered = sorted(records, key=lambda pair: (pair[1].timestamp, pair[1].key.digest))
    for (key, _), record in zip(ordered, leveled(ordered), strict=True):
        found[key].append(record)
    return {key: _mean(several) for key, several in found.items()}


def _mean(records: list[Record]) -> Record:
    newest = records[-1]
    seconds = [record.seconds for record in records if record.seconds]
    if len(seconds) < 2 or not newest.seconds:
        return newest
    return replace(newest, seconds=float(np.exp(np.mean(np.log(seconds)))), timestamp=records[0].timestamp)
