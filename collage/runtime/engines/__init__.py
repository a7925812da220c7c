"""Engines by name: they run the blobs of partitions inside a compiled model (`collage.runtime.engine`).

This side of Collage runs in deployed processes: it imports the engine that is asked for, NumPy and tvm-ffi, nothing
else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import tvm_ffi

from collage.errors import CompiledModelError
from collage.runtime import forks
from collage.runtime.engine import Engine, FunctionEngine, Run

_GROUP = "collage.engines"
#: The list of whoever listens (`listening`).
_heard: ContextVar[list[Run] | None] = ContextVar("_heard", default=None)


@cache
def find(engine: str) -> Engine:
    """The engine of a name.

    Parameters
    ----------
    engine
        A name that an installed package declares, or "package.module:attribute", an `Engine` or a plain function
        `create(blob, options)`.

    Raises
    ------
    CompiledModelError
        There is none of this name, or it does not import; the message says which are known.
    """
    entry = _entry(engine)
    if entry is None:
        known = ", ".join(sorted(entry_points(group=_GROUP).names))
        raise CompiledModelError(
            f"the model needs the engine {engine!r}; known are {known}: install the package that has it "
            "(an editable one again, after an edit of its entry points)"
        )
    try:
        found: Any = entry.load()
    except Exception as error:
        raise CompiledModelError(
            f"the model needs the engine {engine!r}, which does not import ({type(error).__name__}: {error}): "
            f"install the package that has {entry.value}"
        ) from error
    return found if isinstance(found, Engine) else FunctionEngine(found)


def _entry(engine: str) -> EntryPoint | None:
    """Where an engine is. Where two packages offer one name, ours stays."""
    if ":" in engine:
        return EntryPoint(engine, engine, _GROUP)
    found = entry_points(group=_GROUP, name=engine)
    return min(found, key=lambda entry: (not entry.module.startswith("collage."), entry.value), default=None)


def create(engine: str, blob: bytes, options: Mapping[str, Any]) -> Run:
    """The function that runs `blob` on the engine of a name; see `Engine.create`.

    Raises
    ------
    CompiledModelError
        The engine is unknown, its library is not installed, or it does not take the blob.
    """
    require([engine])
    return find(engine).create(blob, options)


def modules_of(engine: str) -> list[str]:
    """The module that implements an engine; none where there is no such engine."""
    entry = _entry(engine)
    return [] if entry is None else [entry.module]


def require(engines: Iterable[str]) -> None:
    """Check that the engines and their libraries are installed.

    Raises
    ------
    CompiledModelError
        An engine is unknown, or its library is missing; the message says how to install it.
    """
    for engine in engines:
        if missing := find(engine).missing():
            raise CompiledModelError(f"the model needs the engine {engine!r}: {missing}")


def object_files(engines: Iterable[str]) -> list[str]:
    """The object files of engines in native code: exported models carry them.

    Raises
    ------
    CompiledModelError
        An engine is unknown, or has to be compiled and cannot be.
    """
    found = (find(engine).object_file() for engine in dict.fromkeys(engines))
    return [path for path in found if path is not None]


@contextmanager
def listening() -> Iterator[list[Run]]:
    """The functions that engines make for compiled models in this thread until the block ends, as they are: TVM wraps
    them, and a call through that takes longer.
    """
    heard: list[Run] = []
    token = _heard.set(heard)
    try:
        yield heard
    finally:
        _heard.reset(token)


def register() -> None:
    """Let compiled models find the engines when they are loaded into this process."""

    def create_engine(engine: str, blob: Any, options: str) -> Run:
        """`blob` gives the bytes when it is called; models of before hand them over as they are."""
        given = blob() if callable(blob) else blob
        run = create(str(engine), given if isinstance(given, bytes) else bytes(given), json.loads(str(options)))
        with suppress(TypeError):  # native engines have no threads of their own
            forks.hold(run)
        if (heard := _heard.get()) is not None:
            heard.append(run)
        return run

    tvm_ffi.register_global_func("collage.runtime.create_engine", create_engine, override=True)
