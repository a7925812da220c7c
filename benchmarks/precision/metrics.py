"""Metrics of tasks, as users write them: metric(outputs, labels) -> float of one sample, more is better. NumPy only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.precision.error import Outputs


@dataclass(frozen=True)
class Reading:
    """Text: the share of characters that are read right, by the edit distance.

    Attributes
    ----------
    characters
        Of each class of the network; the first is the blank of CTC.
    """

    characters: Sequence[str]

    def __call__(self, outputs: Outputs, label: object) -> float:
        """`outputs[0]`: (1, positions, classes); `label`: the text."""
        right, read = str(label), self.read(outputs)
        return 1.0 - min(1.0, edit_distance(read, right) / max(1, len(right)))

    def read(self, outputs: Outputs) -> str:
        """The best class of each position; repetitions and blanks are left out, and spaces at the ends."""
        best = np.asarray(outputs[0]).reshape(-1, len(self.characters)).argmax(-1)
        before = np.concatenate([[0], best[:-1]])
        return "".join(self.characters[i] for i, last in zip(best, before, strict=True) if i != last and i).strip()


@dataclass(frozen=True)
class Classification:
    """1 where the class is right, and 0."""

    def __call__(self, outputs: Outputs, label: object) -> float:
        """`outputs[0]`: a value for each class; `label`: the class."""
        return float(np.argmax(outputs[0]) == label)


@dataclass(frozen=True)
class Detection:
    """The share of positions where a probability is on the right side of a half."""

    def __call__(self, outputs: Outputs, label: object) -> float:
        """`outputs[0]`: probabilities; `label`: what is true of each."""
        return float(np.mean((np.asarray(outputs[0], float).ravel() > 0.5) == np.asarray(label).ravel()))


def edit_distance(left: str, right: str) -> int:
    """Insertions, deletions and replacements from one to the other (Levenshtein)."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        diagonal, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (a != b))
    return row[-1]
