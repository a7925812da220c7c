"""What error the user grants, and whether a placement keeps it on samples that nothing was chosen by.

An error is the relative L2 difference of an output from the float32 network's, the largest over the outputs, averaged
over samples. A drop is what the user's own metric loses on labelled samples. Either is told with an upper confidence
bound, and it is the bound that has to keep the budget. Most samples lose nothing by a metric such as accuracy, so its
bound allows for losses that are too rare for the samples to show: if none of 128 has one, 2.3% may.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv, stdtrit  # type: ignore[import-untyped]

from collage.accuracy.samples import Sample
from collage.accuracy.table import squared_error
from collage.errors import ModelInputError

Outputs = Sequence[np.ndarray]
#: (outputs of a sample, its labels) -> how good they are; more is better.
Metric = Callable[[Outputs, object], float]
#: Of the one-sided upper bound.
_CONFIDENCE = 0.95
#: Up to which relative error placements are offered where the user has a metric instead of an error.
_WIDEST = 0.5


@dataclass(frozen=True)
class Verdict:
    """How wrong a placement is on held-out samples.

    Attributes
    ----------
    value
        Mean over the samples.
    upper
        Upper confidence bound of the mean, 95%, one-sided, by Student's t; the value itself where there is one sample.
        Of drops at least what rare losses allow (`of_drops`).
    samples
        How many there were.
    """

    value: float
    upper: float
    samples: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Verdict:
        """Of the numbers of each sample; infinite where one of them is no number."""
        if not all(map(math.isfinite, values)):
            return cls(math.inf, math.inf, len(values))
        mean = float(np.mean(values))
        if len(values) == 1:
            return cls(mean, mean, 1)
        half = stdtrit(len(values) - 1, _CONFIDENCE) * np.std(values, ddof=1) / math.sqrt(len(values))
        return cls(mean, mean + float(half), len(values))

    @classmethod
    def of_drops(cls, values: Sequence[float], stake: float) -> Verdict:
        """Of what each sample loses by a metric, by which many lose nothing, and a few much.

        Parameters
        ----------
        values
            Losses; gains are negative.
        stake
            What a sample loses, where none of the samples shows it.

        Notes
        -----
        Student's t knows nothing of losses that it has not seen. The share of samples that lose is bounded by C. J.
        Clopper and E. S. Pearson, *The Use of Confidence or Fiducial Limits*, Biometrika 26, 1934, and multiplied by
        the mean loss. The larger bound counts.
        """
        found = cls.of(values)
        losses = [value for value in values if value > 0.0]
        if math.isinf(found.value) or len(losses) == len(values):
            return found
        share = float(betaincinv(len(losses) + 1, len(values) - len(losses), _CONFIDENCE))
        gains = sum(min(value, 0.0) for value in values) / len(values)
        rare = share * (float(np.mean(losses)) if losses else stake) + gains
        return cls(found.value, max(found.upper, rare), found.samples)


class Budget(ABC):
    """What the user grants.

    Attributes
    ----------
    limit
        What a verdict's upper bound may be at most.
    samples
        Those that placements are judged on; they took no part in anything else.
    """

    limit: float
    samples: Sequence[Sample]

    @property
    @abstractmethod
    def widest(self) -> float:
        """The relative error up to which placements are worth a look."""

    @abstractmethod
    def verdict(self, outputs: Sequence[Outputs]) -> Verdict:
        """How wrong a placement is by its outputs for each of the samples."""

    def keeps(self, verdict: Verdict) -> bool:
        """Whether a placement keeps the budget."""
        return verdict.upper <= self.limit


@dataclass(frozen=True)
class ErrorBudget(Budget):
    """A relative error of the outputs.

    Attributes
    ----------
    limit
        The largest relative L2 error.
    samples
        Held-out samples.
    references
        What the network gives for them in float32.
    """

    limit: float
    samples: Sequence[Sample]
    references: Iterable[Outputs]

    @property
    def widest(self) -> float:
        return self.limit

    def verdict(self, outputs: Sequence[Outputs]) -> Verdict:
        return Verdict.of([relative_error(own, right) for own, right in zip(outputs, self.references, strict=True)])


@dataclass(frozen=True)
class MetricBudget(Budget):
    """A drop of the user's metric.

    Attributes
    ----------
    limit
        The largest drop.
    samples
        Validation samples.
    labels
        One for each of them.
    metric
        (outputs, labels) -> float, of one sample; more is better.
    before
        The metric of each sample in float32.
    """

    limit: float
    samples: Sequence[Sample]
    labels: Sequence[object]
    metric: Metric
    before: Sequence[float]

    @classmethod
    def of(
        cls, limit: float, samples: Sequence[Sample], labels: Sequence[object], metric: Metric, right: Iterable[Outputs]
    ) -> MetricBudget:
        """With what the network gives in float32. Raises ModelInputError where the metric raises or is no number."""
        before = [measured(metric, own, label) for own, label in zip(right, labels, strict=True)]
        return cls(limit, samples, labels, metric, before)

    @property
    def widest(self) -> float:
        return _WIDEST

    def verdict(self, outputs: Sequence[Outputs]) -> Verdict:
        after = [measured(self.metric, own, label) for own, label in zip(outputs, self.labels, strict=True)]
        stake = float(np.mean(np.abs(self.before)))  # all that a sample has
        return Verdict.of_drops([b - a for b, a in zip(self.before, after, strict=True)], stake)


def measured(metric: Metric, outputs: Outputs, labels: object) -> float:
    """The metric of one sample. Raises ModelInputError where it raises, or gives no number."""
    try:
        value = float(metric(outputs, labels))
    except Exception as error:  # the user's own code
        raise ModelInputError(f"the metric raised {type(error).__name__}: {error}") from error
    if not math.isfinite(value):
        raise ModelInputError(f"the metric gave {value}: it has to be a number")
    return value


def relative_error(outputs: Outputs, references: Outputs) -> float:
    """The largest over the outputs of |ours - reference| / |reference| (L2); for outputs that are no floats, the root
    of the share of elements that differ. Infinite where an output is not finite and its reference is.
    """
    return math.sqrt(squared_error(outputs, references))
