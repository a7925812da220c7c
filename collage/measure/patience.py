"""Patience: short calls are timed on cores that are near each other, as long as waiting for them takes no more than
agreed.

    patience = Patience(60.0)
    while True:
        begin = patience.begin(fastest, reporter)
        ...  # take the samples of a round
        if not patience.repeats(fastest, apart, begin):
            break
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from collage.cost.disturbance import LIMITS
from collage.measure.core_to_core import core_to_core
from collage.progress import Reporter

#: Seconds of a call up to which distant cores change who is the fastest: threads meet often in it.
_SHORT_S = 10e-3
#: Seconds between two looks at whether cores are near each other again.
_LOOK_S = 0.25


@dataclass
class Patience:
    """For how many seconds more a hypervisor is waited for that put processors far from each other."""

    seconds: float

    def begin(self, fastest: float, reporter: Reporter) -> float:
        """Wait, where calls are short, until cores are near each other or the patience is over; the moment after it.

        Parameters
        ----------
        fastest
            Seconds of a call of the fastest contestant.
        """
        now = time.monotonic()
        until = now + self.seconds if fastest <= _SHORT_S else now
        while time.monotonic() < until and core_to_core() > LIMITS["core_to_core"]:
            reporter.step("waiting for cores that are near each other", 0)
            time.sleep(_LOOK_S)
        began = time.monotonic()
        self.seconds -= min(self.seconds, began - now)
        return began

    def repeats(self, fastest: float, apart: float, began: float) -> bool:
        """Whether what was timed is to be timed again, for which the time since it began is taken off the patience.

        Parameters
        ----------
        fastest
            As of `begin`.
        apart
            Latency between cores around it, over its least.
        began
            What `begin` gave.
        """
        spent = time.monotonic() - began
        if fastest > _SHORT_S or apart <= LIMITS["core_to_core"] or spent >= self.seconds:
            return False
        self.seconds -= spent
        return True
