"""What workers of a test are asked, in a module that is imported in no time: a worker is not heard while it imports."""

from __future__ import annotations

import time


def slowly_squared(number: int) -> int:
    time.sleep(0.02)
    return number * number
