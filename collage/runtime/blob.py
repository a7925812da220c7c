"""The blob of a partition that an engine in C++ runs: a JSON header that says what to compute, and the weights.

    b"CLGBLOB1" | uint64 length of the header | header | padding | tensors, each at a multiple of 256 bytes

The header's "tensors" maps names to dtype, shape, offset (from the start of the first tensor) and bytes. Every operand
of the computation is {"arg": i}, the i-th argument of the partition's function, or {"tensor": name}. Numbers are
little-endian. `blob.h` reads this on the other side.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from collage.errors import CompiledModelError

MAGIC = b"CLGBLOB1"
ALIGNMENT = 256  # as cudaMalloc gives it: for a device, the tensors go there in one piece
_LENGTH = struct.Struct("<Q")


def pack(header: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> bytes:
    """The blob of a header and named tensors; equal arguments give equal bytes.

    Parameters
    ----------
    header
        What the engine needs to know, JSON values only; "op" says what is computed. "tensors" is filled in here.
    tensors
        Name -> array of any NumPy dtype, or of ml_dtypes' bfloat16; stored in C order.

    Raises
    ------
    ValueError
        The header has a "tensors" entry of its own.
    """
    if "tensors" in header:
        raise ValueError('the header\'s "tensors" entry is made from the tensors')
    table, parts, position = {}, [], 0
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        table[name] = {
            "dtype": str(array.dtype),
            "shape": list(np.shape(tensors[name])),
            "offset": position,
            "bytes": array.nbytes,
        }
        padding = -array.nbytes % ALIGNMENT
        parts += [array.tobytes(), bytes(padding)]
        position += array.nbytes + padding
    text = json.dumps({**header, "tensors": table}, sort_keys=True, separators=(",", ":")).encode()
    padding = -(len(MAGIC) + _LENGTH.size + len(text)) % ALIGNMENT
    return b"".join([MAGIC, _LENGTH.pack(len(text)), text, bytes(padding), *parts])


def unpack(blob: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and tensors of a blob; the arrays are read-only views of it.

    Raises
    ------
    CompiledModelError
        These bytes are not a whole blob.
    """
    start = len(MAGIC) + _LENGTH.size
    if len(blob) < start or not blob.startswith(MAGIC):
        raise CompiledModelError("not the blob of a partition")
    (length,) = _LENGTH.unpack_from(blob, len(MAGIC))
    if length > len(blob) - start:
        raise CompiledModelError("the blob of a partition is truncated")
    header = json.loads(blob[start : start + length])
    data = start + length + -(start + length) % ALIGNMENT
    tensors = {}
    for name, entry in header["tensors"].items():
        if data + entry["offset"] + entry["bytes"] > len(blob):
            raise CompiledModelError(f"the blob of a partition is truncated: tensor {name}")
        dtype = numpy_dtype(entry["dtype"])
        flat = np.frombuffer(blob, dtype, entry["bytes"] // dtype.itemsize, data + entry["offset"])
        tensors[name] = flat.reshape(entry["shape"])
    return header, tensors


def with_choice(blob: bytes, chosen: Mapping[str, Any]) -> bytes:
    """The blob of a partition that runs these algorithms, as long as the library still has them.

    Parameters
    ----------
    chosen
        What the engine's `choice` gave for this partition.

    Raises
    ------
    CompiledModelError
        These bytes are not a whole blob.
    """
    header, tensors = unpack(blob)
    del header["tensors"]
    return pack({**header, "choice": dict(chosen)}, tensors)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype of this name; ml_dtypes has those that NumPy lacks."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype
