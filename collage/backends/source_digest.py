"""A digest of our own code generators: part of every record's key (invariant 6 of the architecture).

What a candidate costs depends on the schedule rules and on the exporter as much as on the libraries behind them.
When that code changes, old records are missed, never wrongly hit.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).parent.parent


@cache
def source_digest(*patterns: str) -> str:
    """Sixteen hexadecimal digits over the source files that match the patterns, relative to the `collage` package."""
    files = sorted({file for pattern in patterns for file in _PACKAGE.glob(pattern)})
    if not files:
        raise FileNotFoundError(f"no source file matches {patterns}")
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.relative_to(_PACKAGE).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
