"""Messages to the process that speaks with a board, besides jobs (`collage.measure.job`), and its answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from collage.measure.boards.address import BoardAddress
from collage.measure.boards.identity import BoardIdentity


@dataclass(frozen=True)
class Setup:
    """Comes first.

    Attributes
    ----------
    address
        Of the board.
    target
        TVM's target; None asks the TVM on the board, which then has to have its compiler.
    fingerprint
        That the board has to have; "" is any.
    patience_s
        Seconds in which a board has to be free.
    timeout_s
        Seconds after which one stage of an artifact counts as hanging.
    """

    address: BoardAddress
    target: dict[str, Any] | None
    fingerprint: str
    patience_s: float
    timeout_s: float

    def session_s(self, artifacts: int = 1) -> int:
        """Seconds after which the board's server ends a session with so many artifacts, whatever runs there."""
        return max(1, math.ceil((artifacts + 1) * self.timeout_s))


@dataclass(frozen=True)
class Describe:
    """Say what the board is; the answer is `Described`."""


@dataclass(frozen=True)
class Described:
    """What the board is, or why that cannot be told."""

    found: BoardIdentity | None
    problem: str = ""
