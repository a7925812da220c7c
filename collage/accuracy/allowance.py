"""Wish and Allowance: the error budget as the user gives it, first checked without the network, then with its samples.

Half of the calibration samples give ranges and sensitivities; placements are judged on the other half, or on the
user's validation samples.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from collage.accuracy.budget import Budget, ErrorBudget, Metric, MetricBudget, Outputs
from collage.accuracy.samples import Sample, read_samples, split
from collage.annotations.precision import FLOAT32, PRECISIONS
from collage.errors import CollageError, ModelInputError
from collage.frontend.values import input_specs
from collage.measure.reference import ReferenceRun


@dataclass(frozen=True)
class Wish:
    """The user's arguments, checked without the network. Exactly one of `max_error` and `max_drop` is given.

    Attributes
    ----------
    max_error
        The largest relative L2 error of each output.
    metric, max_drop
        The user's metric, and what it may lose.
    calibration
        Samples as they were given.
    validation
        (samples, labels) as they were given.
    precisions
        Precisions that may be used; float32 is always one.
    """

    max_error: float | None
    metric: Metric | None
    max_drop: float | None
    calibration: Any
    validation: tuple[Any, Sequence[object]] | None
    precisions: tuple[str, ...]

    @classmethod
    def of(
        cls,
        *,
        max_error: float | None = None,
        metric: Metric | None = None,
        max_drop: float | None = None,
        calibration: Any = None,
        validation: tuple[Any, Sequence[object]] | None = None,
        precisions: Iterable[str] | None = None,
    ) -> Wish | None:
        """The checked arguments; None if there is no error budget.

        Raises
        ------
        CollageError
            An argument is missing, contradicts another one, or is no valid budget.
        """
        if max_error is None and max_drop is None:
            without = {"metric": metric, "calibration": calibration, "validation": validation, "precisions": precisions}
            if given := ", ".join(name for name, value in without.items() if value is not None):
                raise CollageError(f"{given} without max_error or max_drop: say how much error may be spent")
            return None
        if max_error is not None and max_drop is not None:
            raise CollageError("max_error and max_drop together: give one of them")
        for name, value in (("max_error", max_error), ("max_drop", max_drop)):
            if value is not None and not (_is_number(value) and 0.0 <= value < math.inf):
                raise CollageError(f"{name} is a number from 0, such as 0.01, not {value!r}")
        if calibration is None:
            raise CollageError("less precision needs calibration samples: give calibration, an .npz file or arrays")
        if max_error is not None and (metric is not None or validation is not None):
            raise CollageError("a metric and validation samples go with max_drop, not with max_error")
        if max_drop is not None and (metric is None or validation is None):
            raise CollageError("max_drop needs metric and validation, a pair of samples and labels")
        chosen = tuple(precisions) if precisions is not None else PRECISIONS
        if unknown := sorted(set(chosen) - set(PRECISIONS)):
            raise CollageError(f"no precision is called {', '.join(unknown)}; there are {', '.join(PRECISIONS)}")
        chosen = tuple(p for p in PRECISIONS if p == FLOAT32 or p in chosen)
        return cls(max_error, metric, max_drop, calibration, validation, chosen)

    def allowance(self, module: Any) -> Allowance:
        """The allowance for a canonical module: the samples are read and split.

        Raises
        ------
        ModelInputError
            Samples do not fit the network's inputs, or are too few.
        """
        samples = read_samples(self.calibration, input_specs(module))
        if self.validation is None:
            return Allowance(self, *split(samples))
        judged_on, labels = read_samples(self.validation[0], input_specs(module)), list(self.validation[1])
        if len(judged_on) != len(labels):
            raise ModelInputError(f"validation has {len(judged_on)} samples and {len(labels)} labels")
        return Allowance(self, samples, judged_on, labels)


@dataclass(frozen=True)
class Allowance:
    """The error budget for one network, with its samples.

    Attributes
    ----------
    wish
        The user's arguments.
    searched_with, judged_on
        Samples for ranges and errors, and held-out samples: each one array per input of the network, in order.
    labels
        Labels of the samples in `judged_on`; () without a metric.
    """

    wish: Wish
    searched_with: Sequence[Sample]
    judged_on: Sequence[Sample]
    labels: Sequence[object] = ()

    def budget(self, reference: ReferenceRun) -> Budget:
        """How placements are judged; the network is run in float32 on the samples, for an error when a placement is
        judged.
        """
        right = _Outputs(reference, self.judged_on)
        wish = self.wish
        if wish.max_error is not None:
            return ErrorBudget(wish.max_error, self.judged_on, right)
        assert wish.metric is not None and wish.max_drop is not None
        return MetricBudget.of(wish.max_drop, self.judged_on, self.labels, wish.metric, right)

    @property
    def key(self) -> str:
        """Digest of the samples that are judged on; "" where a metric judges, which cannot be told from another."""
        if self.wish.metric is not None:
            return ""
        digest = hashlib.sha256()
        for sample in self.judged_on:
            for array in sample:
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]


class _Outputs(Iterable[Outputs]):
    """What the network gives for each of some samples; it is run when that is first asked for."""

    def __init__(self, reference: ReferenceRun, samples: Sequence[Sample]) -> None:
        self._reference = reference
        self._samples = samples

    @cached_property
    def _found(self) -> list[Outputs]:
        return [self._reference.on(sample).outputs for sample in self._samples]

    def __iter__(self) -> Iterator[Outputs]:
        return iter(self._found)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)
