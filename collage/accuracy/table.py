"""ErrorTable: what each operator adds to the error of the network's outputs in less precision.

Errors of operators are as good as independent, so that their squares add: of a placement in which some operators are in
less precision, the squared error is about the sum of theirs (docs/ACCURACY.md has how well that holds).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from collage.annotations.precision import FLOAT32, INT8
from collage.errors import PlanError
from collage.graph.candidates import HOST, CandidatePartition


@dataclass(frozen=True)
class ErrorTable:
    """Squared relative errors at the network's outputs.

    Attributes
    ----------
    errors
        Precision -> node -> its squared error, infinite where it cannot be in that precision. Nodes that are not listed
        are computed as in float32.
    factor
        What all errors are multiplied with, by what was seen end to end.
    """

    errors: Mapping[str, Mapping[int, float]]
    factor: float = 1.0

    def of(self, node: int, precision: str) -> float:
        """The squared error that a node adds when it is computed in a precision; infinite where nothing is known of the
        precision.
        """
        if precision == FLOAT32:
            return 0.0
        if precision not in self.errors:
            return math.inf
        return self.factor * self.errors[precision].get(node, 0.0)

    def squared(self, candidate: CandidatePartition, precision: str) -> float:
        """The squared error that a candidate adds.

        Parameters
        ----------
        precision
            Of its backend (`Backend.precision`); nodes that it labels are in eight bits.
        """
        if candidate.backend == HOST:
            return 0.0
        labelled = {index for label, nodes in candidate.composites if label == INT8 for index in nodes}
        if precision == FLOAT32 and not labelled:
            return 0.0
        inside = candidate.sub_graph.inside
        return sum(self.of(index, INT8 if index in labelled else precision) for index in inside)

    def finite(self) -> ErrorTable:
        """Without operators that cannot be measured alone: they count nothing."""
        known = {p: {n: e for n, e in own.items() if math.isfinite(e)} for p, own in self.errors.items()}
        return replace(self, errors=known)

    def scaled(self, factor: float) -> ErrorTable:
        """With all errors multiplied once more."""
        return replace(self, factor=self.factor * factor)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready; null stands for an infinite error."""
        listed = {
            precision: {str(node): error if math.isfinite(error) else None for node, error in sorted(own.items())}
            for precision, own in sorted(self.errors.items())
        }
        return {"factor": self.factor, "errors": listed}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ErrorTable:
        """The inverse of `as_dict`.

        Raises
        ------
        PlanError
            It is none.
        """
        try:
            errors = {
                str(precision): {int(node): math.inf if e is None else float(e) for node, e in own.items()}
                for precision, own in values["errors"].items()
            }
            return cls(errors, float(values["factor"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PlanError(f"the table of errors is malformed: {error}") from error


def squared_error(outputs: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """The squared relative L2 error of a network's outputs, the largest over the outputs; of those that are not floats
    the share of elements that differ. Infinite where one is not finite, and should be, or the other way round.
    """
    return max(map(_squared, outputs, expected), default=0.0)


def _squared(ours: np.ndarray, reference: np.ndarray) -> float:
    if ours.shape != reference.shape:
        return math.inf
    if not reference.size:
        return 0.0
    if not np.issubdtype(reference.dtype, np.floating):
        return float(np.mean(ours != reference))
    finite = np.isfinite(reference)
    if not finite.all():
        if not np.array_equal(ours[~finite], reference[~finite], equal_nan=True):
            return math.inf
        ours, reference = ours[finite], reference[finite]
    difference = ours.astype(np.float64) - reference
    error, size = float(np.vdot(difference, difference)), float(np.vdot(reference, reference.astype(np.float64)))
    if error == 0:
        return 0.0
    return error / size if size > 0 and math.isfinite(error) else math.inf
