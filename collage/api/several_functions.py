"""partition_functions(): a plan for each function of a module (RFC 0062: each global function is partitioned)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm

from collage.api.partitioner import partition
from collage.api.plan import Plan
from collage.frontend.functions import entry_module, entry_points


def partition_functions(
    module: tvm.IRModule,
    shapes: Mapping[str, Mapping[str, Sequence[int]]] | None = None,
    **options: Any,
) -> dict[str, Plan]:
    """Find a plan for every public Relax function of a module, with shared records.

    Parameters
    ----------
    module
        A Relax module.
    shapes
        Function -> input name -> shape, for dynamic dimensions.
    options
        Of `collage.partition`.

    Returns
    -------
    Function name -> its plan, whose model is that function alone.

    Raises
    ------
    FrontendError, PluginError, BackendUnavailableError, NoCoverError, RecordsError, SearchInterrupted
        As of `collage.partition`.
    """
    given = shapes or {}
    return {
        name: partition(entry_module(module, name), shapes=given.get(name), **options) for name in entry_points(module)
    }
