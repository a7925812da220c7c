"""PackedFile: several files in one, of which what is equal is stored once.

    b"CLGPACK1" | pieces | index, JSON | uint64 length of the index | b"CLGPACK1"

The models of one network for several shapes hold the same weights, each where its own format puts them. So files are
cut where their content says so, and equal pieces are found by their digests ("A Low-bandwidth Network File System",
Muthitacharoen, Chen and Mazieres, SOSP 2001). The index maps each file's name to the pieces that it is made of.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from collage.errors import CompiledModelError

_MAGIC = b"CLGPACK1"
_LENGTH = struct.Struct("<Q")
_FOOTER = _LENGTH.size + len(_MAGIC)
#: A piece ends, on average, 8 KiB after it may end at all.
_SHORTEST, _AVERAGE_BITS, _LONGEST = 2 << 10, 13, 64 << 10
#: Eight bytes decide whether a piece ends behind them: the upper bits of a multiple of them are all 0.
_WINDOW, _MULTIPLIER = 8, np.uint64(0x9E3779B97F4A7C15)
_STEP = 1 << 20


def is_packed(path: Path) -> bool:
    """Whether a file begins as a packed one does. Raises OSError where it cannot be read."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def pack(path: Path, files: Iterable[tuple[str, bytes]], about: Mapping[str, Any]) -> None:
    """Write a packed file.

    Parameters
    ----------
    path
        Where to.
    files
        Names and contents.
    about
        JSON values that the file says of itself.

    Raises
    ------
    OSError
        It cannot be written.
    """
    places: dict[bytes, tuple[int, int]] = {}
    table: dict[str, list[tuple[int, int]]] = {}
    with path.open("wb") as packed:
        packed.write(_MAGIC)
        for name, content in files:
            pieces = table[name] = []
            for begin, end in _pieces(content):
                piece = memoryview(content)[begin:end]
                digest = hashlib.sha256(piece).digest()
                if digest not in places:
                    places[digest] = (packed.tell(), end - begin)
                    packed.write(piece)
                pieces.append(places[digest])
        index = json.dumps({"about": dict(about), "files": table}, separators=(",", ":")).encode()
        packed.write(index + _LENGTH.pack(len(index)) + _MAGIC)


def _pieces(content: bytes) -> Iterator[tuple[int, int]]:
    """Begin and end of each piece."""
    begin = 0
    for cut in _cuts(content):
        while cut - begin > _LONGEST:
            yield begin, begin + _LONGEST
            begin += _LONGEST
        if cut - begin >= _SHORTEST:
            yield begin, cut
            begin = cut
    while begin < len(content):
        end = min(begin + _LONGEST, len(content))
        yield begin, end
        begin = end


def _cuts(content: bytes) -> Iterator[int]:
    """Where pieces may end."""
    last = len(content) - _WINDOW + 1
    for start in range(0, last, _STEP):
        count = min(_STEP, last - start)
        windows: np.ndarray = np.ndarray((count,), "<u8", content, start, (1,))
        ends = np.flatnonzero((windows * _MULTIPLIER) >> np.uint64(64 - _AVERAGE_BITS) == 0)
        yield from (ends + (start + _WINDOW)).tolist()


@dataclass(frozen=True)
class PackedFile:
    """A packed file that was opened. It stays readable when another one takes its path.

    Attributes
    ----------
    content
        All of it.
    about
        What it says of itself.
    files
        Name -> offset and length of its pieces, in order.
    """

    content: mmap.mmap
    about: Mapping[str, Any]
    files: Mapping[str, list[tuple[int, int]]]

    @classmethod
    def open(cls, path: Path) -> PackedFile:
        """Read the index.

        Raises
        ------
        CompiledModelError
            The file's end is missing, or it has no index.
        """
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        end = len(content) - _FOOTER
        if end < len(_MAGIC) or content[-len(_MAGIC) :] != _MAGIC:
            raise CompiledModelError(f"{path}: its end is missing: copy or compile the model again")
        (length,) = _LENGTH.unpack_from(content, end)
        try:
            index = json.loads(content[max(0, end - length) : end])
            return cls(content, index["about"], index["files"])
        except (ValueError, KeyError, TypeError) as error:
            raise CompiledModelError(f"{path}: its index cannot be read: copy or compile the model again") from error

    def pieces(self, name: str) -> Iterator[bytes]:
        """The content of a file, piece by piece."""
        return (self.content[offset : offset + length] for offset, length in self.files[name])

    def read(self, name: str) -> bytes:
        """The content of a file."""
        return b"".join(self.pieces(name))

    def extract(self, name: str, path: Path) -> None:
        """Write a file to `path`. Raises OSError where it cannot be written."""
        with path.open("wb") as file:
            file.writelines(self.pieces(name))

    def unpacked_bytes(self) -> int:
        """What the files take by themselves."""
        return sum(length for pieces in self.files.values() for _, length in pieces)
