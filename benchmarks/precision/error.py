"""The error of outputs: relative L2, the largest of a sample's outputs, in the mean over samples.

This is what `--max-error` limits, what NNCF's accuracy control is given as its metric, and what all are judged by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Outputs = Sequence[NDArray[np.generic]]


@dataclass(frozen=True)
class Error:
    """Of one contestant over several samples.

    Attributes
    ----------
    mean
        Of the samples: what counts.
    worst
        The largest of all samples and outputs.
    samples
        Of each sample, the largest of all outputs.
    """

    mean: float
    worst: float
    samples: tuple[float, ...]


def relative_l2(found: Outputs, expected: Outputs) -> list[float]:
    """Of each output of one sample: the L2 norm of the difference over that of what is expected.

    Infinite where an output has another shape, or is not finite where the expected one is.
    """
    if [np.shape(a) for a in found] != [np.shape(a) for a in expected]:
        return [float("inf")] * max(1, len(expected))
    return [_relative_l2(a, b) for a, b in zip(found, expected, strict=True)]


def _relative_l2(found: NDArray[np.generic], expected: NDArray[np.generic]) -> float:
    right = np.asarray(expected, float)
    with np.errstate(invalid="ignore"):
        difference = np.asarray(found, float) - right
    norm, size = float(np.linalg.norm(difference)), float(np.linalg.norm(right))
    if norm == 0.0:
        return 0.0
    return norm / size if size > 0.0 and np.isfinite(norm) else float("inf")


def error_of(found: Sequence[Outputs], expected: Sequence[Outputs]) -> Error:
    """Over all samples.

    Raises
    ------
    ValueError
        There is no sample.
    """
    if not expected:
        raise ValueError("an error needs a sample at least")
    each = [max(relative_l2(a, b), default=0.0) for a, b in zip(found, expected, strict=True)]
    return Error(float(np.mean(each)), max(each), tuple(each))


def variation(outputs: Sequence[Outputs]) -> float:
    """How far outputs of different samples are from each other: each against the one before, as an error.

    An error that is no smaller than that tells samples apart no more.
    """
    return error_of(outputs[1:], outputs[:-1]).mean if len(outputs) > 1 else 0.0
