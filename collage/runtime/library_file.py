"""Whether a shared library is whole, before the system's loader maps it.

The loader takes a file that was cut off (a broken copy, a full disk) without a word, and the process is killed by
SIGBUS when it reads what is missing. ELF says how long a file has to be: "Tool Interface Standard, Executable and
Linking Format", sections 1 and 2.
"""

from __future__ import annotations

import struct
from pathlib import Path

_HEADER = 64


def is_cut_off(path: Path) -> bool:
    """Whether an ELF file is shorter than its headers say. Files of other formats are the loader's to judge."""
    size = path.stat().st_size
    with path.open("rb") as file:
        header = file.read(_HEADER)
        if not header.startswith(b"\x7fELF") or len(header) < 5 or header[4] != 2:  # 2: 64 bits
            return False
        if len(header) < _HEADER:
            return True
        order = "<" if header[5] == 1 else ">"
        segments, sections = struct.unpack_from(order + "QQ", header, 0x20)
        segment_size, segment_count, section_size, section_count = struct.unpack_from(order + "4H", header, 0x36)
        ends = [segments + segment_size * segment_count, sections + section_size * section_count]
        if size < max(ends):
            return True
        file.seek(segments)
        for _ in range(segment_count):
            entry = file.read(segment_size)
            offset, length = (
                struct.unpack_from(order + "Q", entry, 0x08)[0],
                struct.unpack_from(order + "Q", entry, 0x20)[0],
            )
            if size < offset + length:
                return True
    return False
