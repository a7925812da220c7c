"""Fitting several models side by side: XGBoost and LAPACK let other threads run, and one fit has little for two."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from joblib import Parallel, delayed

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def parallel_map(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """The function of each, in order, on all processors of this process; what it gives does not depend on how many."""
    return list(Parallel(n_jobs=-1, prefer="threads")(delayed(function)(item) for item in items))
