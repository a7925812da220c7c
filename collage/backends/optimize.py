"""optimize_for(): what a backend would have done to the whole network before it is partitioned (RFC 0062, appendix C,
"BYOC global": a new `optimize_for_<toolchain>` function, which the user applies).
"""

from __future__ import annotations

from typing import Any

from collage import plugins
from collage.backends.base import Backend


def optimize_for(backend: str | Backend, module: Any) -> Any:
    """A Relax module with a backend's rewrites of the whole network, such as a change of layout.

    `collage.partition` never does this by itself: what helps one backend may slow another.

    Parameters
    ----------
    backend
        Name or instance.
    module
        What `collage.load` gave, or what an earlier call of this function gave.

    Raises
    ------
    PluginError
        The name is unknown.
    """
    chosen: Backend = plugins.load("backends", backend)
    return chosen.optimize(module)
