"""Disturbance: whether conditions of the machine disturbed a measurement. Conditions are numbers by name:

`load`
    Share of the processors' time that other processes used.
`steal`
    Share of the processors' time that a hypervisor gave to other guests.
`canary`
    Time of a fixed piece of arithmetic over its best; 0 where it was not run.
`core_to_core`
    Latency between processors over its least; 0 where it is not known.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Beyond which a condition disturbs what is timed. Daemons and the kernel stay below a tenth of the processors' time,
#: and one busy process exceeds it on up to ten processors; stolen time comes in pieces longer than a sample; turbo
#: clocks alone change the canary by a sixth. The latency between two processors varied by 1.6 on cores with a cache in
#: common, and was 4 to 5 times the least without one.
LIMITS: Mapping[str, float] = {"load": 0.1, "steal": 0.02, "canary": 1.25, "core_to_core": 2.0}


def was_disturbed(conditions: Mapping[str, float]) -> bool:
    """Whether any condition is beyond its limit; a condition that is not known is not."""
    return any(conditions.get(name, 0.0) > limit for name, limit in LIMITS.items())
