"""The compiled kernels of a CUTLASS partition: carried behind its blob.

    blob (blob.py) | kernel library, compressed | kernel library, compressed | ...

The header's "kernels" names them in order, with their compressed sizes. They are not tensors of the blob, because those
go to the device.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from collage.errors import CompiledModelError
from collage.runtime.blob import unpack


@dataclass(frozen=True)
class KernelLibrary:
    """A shared object with one kernel; its name says which."""

    name: str
    code: bytes

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.code).hexdigest()


def describe_libraries(libraries: Sequence[KernelLibrary]) -> tuple[list[dict[str, Any]], bytes]:
    """What the header's "kernels" says of the libraries, and the bytes to append to the blob."""
    packed = [zlib.compress(library.code) for library in libraries]
    entries = [{"name": x.name, "bytes": len(data)} for x, data in zip(libraries, packed, strict=True)]
    return entries, b"".join(packed)


def split(blob: bytes) -> tuple[dict[str, Any], list[KernelLibrary]]:
    """The header of a partition's blob, and the kernels behind it.

    Raises
    ------
    CompiledModelError
        These bytes are not the whole blob of a CUTLASS partition.
    """
    header, _ = unpack(blob)
    entries = header.get("kernels", [])
    start = len(blob) - sum(entry["bytes"] for entry in entries)
    libraries = []
    try:
        for entry in entries:
            libraries.append(KernelLibrary(entry["name"], zlib.decompress(blob[start : start + entry["bytes"]])))
            start += entry["bytes"]
    except zlib.error as error:
        raise CompiledModelError(f"the kernels of a CUTLASS partition are damaged: {error}") from error
    return header, libraries
