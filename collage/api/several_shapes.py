"""partition_shapes(): a plan for each of several lists of input shapes, found one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collage.api.partitioner import partition
from collage.api.plan_set import PlanSet
from collage.errors import CollageError, FrontendError
from collage.frontend import input_shapes
from collage.progress import Reporter


def partition_shapes(
    model: Any,
    shapes: Sequence[Mapping[str, Sequence[int]]],
    *,
    inputs: Sequence[Sequence[np.ndarray]] | None = None,
    reporter: Reporter | None = None,
    **options: Any,
) -> PlanSet:
    """Find a plan for each of several lists of input shapes; they share records, and become one compiled model.

    Parameters
    ----------
    model
        What `collage.load` takes.
    shapes
        For each plan, input name -> shape. `collage.batch_shapes` gives those of several batches.
    inputs
        For each plan, arrays to run candidates on; None makes legal random ones.
    reporter
        Shows progress.
    options
        The others of `collage.partition`.

    Raises
    ------
    FrontendError
        There are no shapes, two of them are equal, or they do not fit the network; raised before anything is measured.
    CollageError
        As of `collage.partition`.
    """
    if options.get("runner") is not None:
        raise CollageError("a plan for a board is of one list of shapes: what runs there is one library")
    reporter = reporter or Reporter()
    wanted = [input_shapes(model, each) for each in shapes]
    if not wanted:
        raise FrontendError("no shapes are given to find plans for")
    if twice := next((each for i, each in enumerate(wanted) if each in wanted[:i]), None):
        raise FrontendError(f"shapes are given twice: {_text(twice)}")
    plans = []
    for i, each in enumerate(wanted):
        reporter.note(f"shapes {i + 1} of {len(wanted)}: {_text(each)}")
        arrays = None if inputs is None else inputs[i]
        plans.append(partition(model, shapes=each, inputs=arrays, reporter=reporter, **options))
    return PlanSet(model, tuple(plans))


def _text(shapes: Mapping[str, Sequence[int]]) -> str:
    return " ".join(f"{name}={','.join(map(str, shape))}" for name, shape in shapes.items())
