"""Timeline of one call of a placement: when each partition begins and ends, and the other calls between them."""

from __future__ import annotations

import msgspec

from collage.deployed.messages import Calls

#: How the names of partitions begin, and those of their further steps (`collage.compile.rewrite`).
PARTITION, STEP = "collage_", "within_collage_"
#: A longer timeline is not kept: it would say less than the sums of its parts, and is read with every plan.
_LONGEST = 2_000


class TimedCall(msgspec.Struct, frozen=True, array_like=True):
    """A call that the virtual machine makes.

    Attributes
    ----------
    name
        Its symbol; "" of a partition.
    partition
        The partition's number among those of backends, in execution order; -1 of other calls.
    begin, end
        Seconds since the beginning of the first one.
    """

    name: str
    partition: int
    begin: float
    end: float

    def scaled(self, factor: float) -> TimedCall:
        """On a machine that takes so many times as long."""
        return TimedCall(self.name, self.partition, _short(self.begin * factor), _short(self.end * factor))


def timeline(calls: Calls, count: int) -> tuple[TimedCall, ...]:
    """The timeline of a placement with so many partitions of backends; () where the calls are of another one, or very
    many. The steps of a partition are one call, from the first one to the last.
    """
    found: list[TimedCall] = []
    number = -1
    for symbol, begin, end in calls:
        if symbol.startswith(STEP) and found and found[-1].partition >= 0:
            found[-1] = msgspec.structs.replace(found[-1], end=_short(end))
            continue
        inside = symbol.startswith(PARTITION)
        number += inside
        name, of = ("", number) if inside else (symbol, -1)
        found.append(TimedCall(name, of, _short(begin), _short(end)))
    return tuple(found) if number + 1 == count and len(found) <= _LONGEST else ()


def _short(seconds: float) -> float:
    return float(f"{seconds:.5g}")
