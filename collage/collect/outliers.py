"""Outliers: measurements that are taken a second time, because they do not fit those of their peers.

Two signs are looked for. A spread far above that of its peers: something disturbed the machine. And a workload that
takes much longer than another of the same operators on the same backend that is nowhere smaller: one of the two is
wrong. Both signs have innocent causes too (an unlucky size, another algorithm); a second measurement then agrees with
the first, and nothing is lost but its time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from collage.cost.cost import Cost

#: A relative spread up to this is no outlier.
_SPREAD = 0.05
#: Times the median of the peers' relative spreads.
_ABOVE_PEERS = 4.0
#: Times as long as something larger.
_IMPLAUSIBLE = 1.5


@dataclass(frozen=True)
class Observation:
    """A measured workload.

    Attributes
    ----------
    peers
        What it is compared within for its spread; its backend.
    family
        What it is compared within for its latency; backend and operators. Members have equally many extents.
    extents
        Of all its tensors.
    cost
        Finite.
    """

    peers: Hashable
    family: Hashable
    extents: tuple[int, ...]
    cost: Cost


def outliers(observations: Sequence[Observation]) -> list[bool]:
    """Return, per observation, whether it is an outlier."""
    return [a or b for a, b in zip(_wide(observations), _implausible(observations), strict=True)]


def better(first: Cost, second: Cost) -> bool:
    """Whether the second of two measurements of one thing is to be kept: the one that converged better is."""
    if not second.is_finite:
        return False
    return not first.is_finite or second.spread * first.seconds < first.spread * second.seconds


def _wide(observations: Sequence[Observation]) -> list[bool]:
    spreads: dict[Hashable, list[float]] = defaultdict(list)
    for m in observations:
        spreads[m.peers].append(_relative(m.cost))
    limits = {peers: max(_SPREAD, _ABOVE_PEERS * float(np.median(found))) for peers, found in spreads.items()}
    return [_relative(m.cost) > limits[m.peers] for m in observations]


def _implausible(observations: Sequence[Observation]) -> list[bool]:
    """Both of a pair in which the larger one is much faster, beyond what their spreads explain."""
    found = np.zeros(len(observations), dtype=bool)
    families: dict[Hashable, list[int]] = defaultdict(list)
    for index, m in enumerate(observations):
        families[m.family].append(index)
    for members in families.values():
        where = np.array(members)
        extents = np.array([observations[i].extents for i in members])
        fast = np.array([observations[i].cost.seconds + observations[i].cost.spread for i in members])
        slow = np.array([observations[i].cost.seconds - observations[i].cost.spread for i in members])
        for row, index in enumerate(members):
            larger = (extents >= extents[row]).all(axis=1)
            faster = larger & (fast * _IMPLAUSIBLE < slow[row])
            if faster.any():
                found[index] = True
                found[where[faster]] = True
    return [bool(flag) for flag in found]


def _relative(cost: Cost) -> float:
    return cost.spread / cost.seconds if cost.seconds > 0 else 0.0
