"""Cost: the latency of a candidate partition, in seconds (RFC 0062, "Util Datatypes").

Costs are additive. Two values are special: *Invalid* (+inf, the backend could not compile or run the candidate)
absorbs under addition; *Unknown* (NaN, no information) may be added but never compared: a searcher that meets one
has to say what it did.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: The reason of a cost that a model predicted, and no device measured; more may follow, such as what was in the way.
PREDICTED = "predicted"


@dataclass(frozen=True)
class Cost:
    """A latency in seconds with how well it is known.

    Attributes
    ----------
    seconds
        Median latency; `inf` is Invalid, `nan` is Unknown.
    spread
        Half-width of the confidence interval of the median, in seconds; 0 when the cost was not measured.
    samples
        How many timed samples stand behind it; 0 when the cost was not measured.
    reason
        Why it is Invalid or Unknown, or why measuring stopped ("converged", "time limit", ...).
    """

    seconds: float
    spread: float = 0.0
    samples: int = 0
    reason: str = ""

    def __post_init__(self) -> None:
        if self.seconds < 0:
            raise ValueError(f"a cost is a latency and cannot be negative: {self.seconds}")

    @classmethod
    def invalid(cls, reason: str = "") -> Cost:
        """The backend could not compile or run the candidate."""
        return cls(math.inf, reason=reason)

    @classmethod
    def unknown(cls, reason: str = "") -> Cost:
        """There is no information about the candidate."""
        return cls(math.nan, reason=reason)

    @classmethod
    def zero(cls) -> Cost:
        return cls(0.0)

    @property
    def is_invalid(self) -> bool:
        return math.isinf(self.seconds)

    @property
    def is_unknown(self) -> bool:
        return math.isnan(self.seconds)

    @property
    def is_predicted(self) -> bool:
        """Whether a model predicted it, and no device measured it."""
        return self.is_finite and self.reason.startswith(PREDICTED)

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.seconds)

    def __add__(self, other: Cost) -> Cost:
        if self.is_invalid or other.is_invalid:
            return Cost.invalid(self.reason if self.is_invalid else other.reason)
        return Cost(self.seconds + other.seconds, math.hypot(self.spread, other.spread))

    def __lt__(self, other: Cost) -> bool:
        self._known(other)
        return self.seconds < other.seconds

    def __le__(self, other: Cost) -> bool:
        self._known(other)
        return self.seconds <= other.seconds

    def _known(self, other: Cost) -> None:
        if self.is_unknown or other.is_unknown:
            raise ValueError("an unknown cost cannot be compared; order by the backends' declared priority instead")

    def ties(self, other: Cost, tolerance: float = 0.02) -> bool:
        """Whether the difference lies inside the combined intervals or under `tolerance` (a ratio): then the
        incumbent stays.

        An interval reaches half of its cost at most, so that three times as slow never ties. That of a single sample
        is as wide as the sample itself, and a single one is taken of what is far slower than its alternatives.
        """
        self._known(other)
        if self.is_invalid or other.is_invalid:
            return self.is_invalid and other.is_invalid
        gap = abs(self.seconds - other.seconds)
        reach = sum(min(cost.spread, cost.seconds / 2) for cost in (self, other))
        return gap <= max(reach, tolerance * min(self.seconds, other.seconds))

    def __str__(self) -> str:
        if self.is_invalid:
            return "invalid"
        if self.is_unknown:
            return "unknown"
        text = f"{self.seconds * 1e3:.4g} ms"
        return f"{text} ± {self.spread * 1e3:.2g}" if self.samples else text
