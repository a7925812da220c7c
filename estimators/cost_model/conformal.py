"""Conformal intervals: as wide as the errors on networks that were left out of training.

Split conformal prediction (Vovk et al. 2005; Lei et al. 2018) takes a quantile of held-out errors, each divided by its
predicted size. Workloads of one network resemble each other, so errors are those of models that saw no record of the
network (cross-conformal, Vovk 2015, with networks as folds). With equal weights for all workloads a large network would
drown the others. With equal weights for all networks (Dunn, Wasserman and Ramdas 2022, "pooling CDFs") five records of
a run that was cut short would count as much as five hundred. The weight of a network therefore grows with the root of
its workloads. Coverage is that of a network never seen, given that it is drawn like those of the training data.
"""

from __future__ import annotations

import numpy as np

#: Groups beyond so many are left out several at a time.
_MOST_FOLDS = 50


def group_weights(groups: np.ndarray) -> np.ndarray:
    """One weight per member: equal within a group, with sums that grow with the root of the group's size, 1 in all."""
    _, member_of, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / (np.sqrt(sizes[member_of]) * np.sqrt(sizes).sum()))


def conformal_quantile(scores: np.ndarray, groups: np.ndarray, coverage: float) -> float:
    """The smallest score that at least `coverage` of the weight of all scores does not exceed.

    Parameters
    ----------
    scores
        Held-out errors, each divided by its predicted size; not negative.
    groups
        The network of each.
    coverage
        Between 0 and 1.

    Raises
    ------
    ValueError
        There are no scores, or the coverage is no probability.
    """
    if not len(scores) or not 0.0 < coverage < 1.0:
        raise ValueError(f"a quantile needs scores and a coverage between 0 and 1: {len(scores)} scores, {coverage}")
    order = np.argsort(scores, kind="stable")
    reached = np.cumsum(group_weights(groups)[order])
    # With equal weights of n scores this is the usual ceil((n + 1) coverage)-th of them, as far as there is one.
    wanted = min(1.0, coverage * (1.0 + 1.0 / len(scores)))
    position = int(np.searchsorted(reached, wanted - 1e-12))
    return float(scores[order][min(position, len(scores) - 1)])


def observed_coverage(scores: np.ndarray, groups: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Of each level, the share of scores that `conformal_quantile` of the other groups' scores holds, by weight.

    Parameters
    ----------
    scores, groups
        As there, of two groups at least; many groups are left out several at a time.
    levels
        Nominal coverages.
    """
    weights, order = group_weights(groups), np.argsort(scores, kind="stable")
    folds = np.unique(groups, return_inverse=True)[1] % _MOST_FOLDS
    inside = np.zeros(len(levels))
    for fold in np.unique(folds):
        left_out = folds == fold
        others = order[~left_out[order]]
        reached = np.cumsum(weights[others])
        wanted = np.minimum(1.0, levels * (1.0 + 1.0 / len(others))) * reached[-1]
        limits = scores[others][np.minimum(np.searchsorted(reached, wanted - 1e-12), len(others) - 1)]
        inside += weights[left_out] @ (scores[left_out, None] <= limits)
    return inside
