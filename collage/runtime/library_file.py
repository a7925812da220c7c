"""Whether a shared library is whole, and one of ours, before the system's loader maps it.

The loader takes a file that was cut off (a broken copy, a full disk) without a word, and the process is killed by
SIGBUS when it reads what is missing. And it runs the initialisers of whatever it is given. So both are read from the
file. "Tool Interface Standard, Executable and Linking Format", sections 1 and 2, says how.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_HEADER = 64
_DYNAMIC_SYMBOLS = 11
_SYMBOL_BYTES = 24
#: What registers the engine module (`engine_module.cc`): every compiled model defines it, whatever its version.
_MARK = b"_ZN7collage8RegisterEv"


@dataclass(frozen=True)
class _Tables:
    """Where the header of an ELF file of 64 bits says that its tables are."""

    order: str
    segments: int
    segment_size: int
    segment_count: int
    sections: int
    section_size: int
    section_count: int

    @classmethod
    def read(cls, header: bytes) -> _Tables:
        order = "<" if header[5] == 1 else ">"
        segments, sections = struct.unpack_from(order + "QQ", header, 0x20)
        segment_size, segment_count, section_size, section_count = struct.unpack_from(order + "4H", header, 0x36)
        return cls(order, segments, segment_size, segment_count, sections, section_size, section_count)


def is_cut_off(path: Path) -> bool:
    """Whether an ELF file is shorter than its headers say. Files of other formats are the loader's to judge."""
    size = path.stat().st_size
    with path.open("rb") as file:
        header = file.read(_HEADER)
        if not _is_elf(header):
            return False
        if len(header) < _HEADER:
            return True
        tables = _Tables.read(header)
        ends = [
            tables.segments + tables.segment_size * tables.segment_count,
            tables.sections + tables.section_size * tables.section_count,
        ]
        if size < max(ends):
            return True
        file.seek(tables.segments)
        for _ in range(tables.segment_count):
            entry = file.read(tables.segment_size)
            (offset,) = struct.unpack_from(tables.order + "Q", entry, 0x08)
            (length,) = struct.unpack_from(tables.order + "Q", entry, 0x20)
            if size < offset + length:
                return True
    return False


def is_compiled_model(path: Path) -> bool:
    """Whether a file is a library that defines what every compiled model does. Nothing of it runs.

    Raises
    ------
    OSError
        The file cannot be read.
    """
    with path.open("rb") as file:
        header = file.read(_HEADER)
        if len(header) < _HEADER or not _is_elf(header):
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            try:
                return any(name == _MARK for name in _defined(content, _Tables.read(header)))
            except (struct.error, OverflowError):
                return False  # tables that lead nowhere


def _is_elf(header: bytes) -> bool:
    return header.startswith(b"\x7fELF") and len(header) > 4 and header[4] == 2  # 2: 64 bits


def _defined(content: mmap.mmap, tables: _Tables) -> Iterator[bytes]:
    """Names of the symbols that a library defines for others."""
    for number in range(tables.section_count):
        section = tables.sections + number * tables.section_size
        (kind,) = struct.unpack_from(tables.order + "I", content, section + 4)
        if kind != _DYNAMIC_SYMBOLS:
            continue
        begin, size, link = struct.unpack_from(tables.order + "QQI", content, section + 0x18)
        (names,) = struct.unpack_from(tables.order + "Q", content, tables.sections + link * tables.section_size + 0x18)
        for symbol in range(begin, begin + size, _SYMBOL_BYTES):
            name, _, _, place = struct.unpack_from(tables.order + "IBBH", content, symbol)
            if place:  # 0: defined elsewhere
                yield content[names + name : content.find(b"\0", names + name)]
