"""Thread pools: which backends run on the same threads.

Every engine has its own pool of threads. The threads of a pool that was just used stay awake and delay the next pool's
(docs/RESULTS.md, "Thread pools"). A partition therefore costs more between partitions of another pool than beside those
of its own, and a sum of costs cannot express that. So placements that stay in one pool are searched as well, and run.
"""

from __future__ import annotations

from collections.abc import Iterable

from collage.backends.base import Backend


def shared_pools(backends: Iterable[Backend]) -> list[frozenset[str]]:
    """Names of backends that share a pool, two or more each, pool by pool; a pool that has all of them is left out."""
    members: dict[str, set[str]] = {}
    count = 0
    for backend in backends:
        members.setdefault(backend.pool, set()).add(backend.name)
        count += 1
    return [frozenset(names) for _, names in sorted(members.items()) if 1 < len(names) < count]
