"""Repeats: records of one thing that was measured several times become one record.

On a shared machine a latency that is measured again comes out a tenth higher or lower, a small one by a quarter, and
sometimes twice as high. Errors of measurements far apart in time are independent, so their mean is nearer to the truth
than the newest measurement. A mean that outliers hardly move (Huber 1964) is nearer still. Effects of whole sessions of
measuring are removed before (`estimators.cost_model.data.sessions`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

import numpy as np

from collage.records import Record
from estimators.cost_model.data.sessions import leveled

#: Deviation of the logarithm beyond which a measurement weighs less.
_THRESHOLD = 0.1
_ROUNDS = 20

_Key = TypeVar("_Key", bound=Hashable)


def one_of_each(records: Iterable[tuple[_Key, Record]]) -> Mapping[_Key, Record]:
    """The newest record of each key, with the robust geometric mean of the leveled latencies of all that have one, and
    the time of the oldest, which shows what it was measured beside.

    The newest shows whether the backend can run it at all; one that it cannot run has no latency.
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
    return replace(newest, seconds=float(np.exp(robust_mean(np.log(seconds)))), timestamp=records[0].timestamp)


def robust_mean(values: np.ndarray) -> float:
    """Huber's: a value farther than `_THRESHOLD` off weighs less the farther it is; of two values the mean."""
    mean = float(np.median(values))
    for _ in range(_ROUNDS):
        mean = float(np.average(values, weights=_THRESHOLD / np.maximum(np.abs(values - mean), _THRESHOLD)))
    return mean
