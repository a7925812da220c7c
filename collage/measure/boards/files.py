"""Files of a board, read by a kernel that is compiled for it.

TVM's RPC server copies files of its own folder only, and takes those of `/proc` for empty. But a kernel may call the
functions of its process: `uname`, and C's functions on files. A board therefore needs nothing but TVM's runtime to say
what it is. If the kernel runs, the target is also shown to be the board's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tvm

from collage.backends.lowering import Linker

#: Bytes of a path, and of what is read of a file: the first size that holds all of it, or the largest.
_PATH = 256
_SIZES = (1 << 12, 1 << 16, 1 << 20)
#: Fields of `struct utsname`, of equal length on Linux.
_NAMES, _NAME = 6, 65
_MODE = np.frombuffer(b"r\0", dtype=np.uint8)
#: Beginnings of triples whose `long` has 32 bits.
_NARROW = ("arm", "i386", "i486", "i586", "i686", "mips-", "mipsel", "riscv32", "thumb")
_UNAME = "collage_uname"

#: Reads at most `size` bytes; `word` is C's `size_t` and `long`.
_READ = """
@T.prim_func(s_tir=True)
def read(
    path: T.Buffer(({path},), "uint8"),
    mode: T.Buffer((2,), "uint8"),
    content: T.Buffer(({size},), "uint8"),
    found: T.Buffer((2,), "int64"),
):
    file: T.let[T.handle] = T.call_extern("handle", "fopen", path.data, mode.data)
    found[0] = T.int64(-1)
    found[1] = T.int64(-1)
    if not T.isnullptr(file):
        found[0] = T.Cast("int64", T.call_extern("{word}", "fread", content.data, T.{word}(1), T.{word}({size}), file))
        T.evaluate(T.call_extern("int32", "fseek", file, T.{word}(0), T.int32(2)))
        found[1] = T.Cast("int64", T.call_extern("{word}", "ftell", file))
        T.evaluate(T.call_extern("int32", "fclose", file))
"""
_TELL_NAMES = """
@T.prim_func(s_tir=True)
def uname(names: T.Buffer(({size},), "uint8")):
    T.evaluate(T.call_extern("int32", "uname", names.data))
"""


def build_reader(target: dict[str, Any], linker: Linker, folder: Path) -> Path:
    """Compile the kernels for a target to a file in a folder.

    Raises
    ------
    Exception
        TVM, or the linker, cannot do so.
    """
    word = "int32" if linker.triple.startswith(_NARROW) else "int64"
    sources = {_symbol(size): _READ.format(path=_PATH, size=size, word=word) for size in _SIZES}
    sources[_UNAME] = _TELL_NAMES.format(size=_NAMES * _NAME)
    functions = {name: tvm.script.from_source(source) for name, source in sources.items()}
    module = tvm.IRModule({name: f.with_attr("global_symbol", name) for name, f in functions.items()})
    path = folder / f"reader{linker.suffix}"
    linker.export(tvm.tirx.build(module, target=tvm.target.Target(target)), path)
    return path


class BoardFiles:
    """The files of the board of a session.

    Parameters
    ----------
    session
        Of TVM's RPC.
    reader
        What `build_reader` gave.

    Raises
    ------
    Exception
        The kernels cannot be loaded there.
    """

    def __init__(self, session: Any, reader: Path) -> None:
        session.upload(str(reader), reader.name)
        self._module = session.load_module(reader.name)
        self._device = session.cpu(0)

    def content(self, path: str, limit: int = _SIZES[-1]) -> tuple[bytes, int]:
        """A file, or so many bytes of its beginning, and how many bytes it says that it has; (b"", -1) where it cannot
        be read.
        """
        name = np.zeros(_PATH, dtype=np.uint8)
        encoded = path.encode()[: _PATH - 1]
        name[: len(encoded)] = np.frombuffer(encoded, dtype=np.uint8)
        given, mode = self._tensor(name), self._tensor(_MODE)
        count, size = 0, -1
        found = self._empty(2, "int64")
        for capacity in (size for size in _SIZES if size <= limit):
            content = self._empty(capacity, "uint8")
            self._module[_symbol(capacity)](given, mode, content, found)
            count, size = map(int, found.numpy())
            if count < capacity:
                break
        return (content.numpy()[:count].tobytes() if count > 0 else b""), size

    def text(self, path: str) -> str:
        """The text of a file; "" where it cannot be read."""
        return self.content(path)[0].decode(errors="replace")

    def names(self) -> tuple[str, str, str]:
        """System, name and architecture, as `uname` tells them."""
        names = self._empty(_NAMES * _NAME, "uint8")
        self._module[_UNAME](names)
        fields = names.numpy().reshape(_NAMES, _NAME)
        system, node, _, _, machine, _ = (bytes(field).partition(b"\0")[0].decode(errors="replace") for field in fields)
        return system, node, machine

    def _tensor(self, array: np.ndarray) -> Any:
        return tvm.runtime.tensor(array, self._device)

    def _empty(self, count: int, dtype: str) -> Any:
        return tvm.runtime.empty((count,), dtype, self._device)


def _symbol(size: int) -> str:
    return f"collage_read_{size}"
