"""Targets of other machines: from what the user writes to what TVM compiles for, and who links it.

    llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+neon

is how TVM's tools have always written a target, and how its documentation of boards does. This TVM takes dictionaries.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from shutil import which
from typing import Any

import tvm

from collage.backends.lowering import Linker
from collage.errors import CollageError

#: Options that are lists, and numbers; all others are text.
_LISTS, _NUMBERS = ("keys", "mattr", "cl-opt", "jit"), ("num-cores", "vector-width", "opt-level")
#: What a compiler of a triple is called behind it.
_COMPILERS = ("g++", "gcc", "clang++", "clang")


def parse_target(text: str) -> dict[str, Any]:
    """A target as JSON-ready data, from options as above, or from JSON.

    Raises
    ------
    CollageError
        It does not read like that, is not for a processor, or TVM cannot compile for it.
    """
    try:
        target = json.loads(text) if text.lstrip().startswith("{") else _of_options(shlex.split(text))
    except ValueError as error:
        raise CollageError(f"the target {text!r} cannot be read: {error}") from error
    if target.get("kind") != "llvm":
        raise CollageError(f'the target {text!r} is not of a processor: write "llvm -mtriple=... -mcpu=..."')
    try:
        tvm.target.codegen.llvm_get_vector_width(tvm.target.Target(target))
    except Exception as error:  # LLVM knows no such processor, or TVM no such option, in whatever way they say so
        raise CollageError(f"TVM cannot compile for {text!r}: {str(error).strip().splitlines()[-1]}") from error
    return dict(target)


def _of_options(words: Iterable[str]) -> dict[str, Any]:
    kind, *options = words
    target: dict[str, Any] = {"kind": kind}
    for option in options:
        name, equals, value = option.removeprefix("-").partition("=")
        if not option.startswith("-") or not equals:
            raise ValueError(f"{option!r} is no option like -mcpu=NAME")
        if name == "device":
            continue  # chose schedules, long ago
        if name in _LISTS:
            target[name] = [each for each in value.split(",") if each]
        else:
            target[name] = int(value) if name in _NUMBERS else value
    return target


def target_text(target: Mapping[str, Any]) -> str:
    """A target as the user writes it."""
    values = {n: ",".join(map(str, v)) if isinstance(v, list) else v for n, v in target.items() if n != "kind"}
    return " ".join([str(target["kind"]), *(f"-{name}={value}" for name, value in values.items())])


def linker_of(target: Mapping[str, Any]) -> Linker:
    """Who links for a machine: this one's compiler where it is of the same kind, a cross compiler of the triple where
    there is one, else the machine itself.
    """
    here = str(tvm.target.codegen.llvm_get_system_triple())
    triple = str(target.get("mtriple") or here)
    if _kind(triple) == _kind(here):
        return Linker(triple, next(filter(which, ("c++", *_COMPILERS)), ""))
    arch, system = _kind(triple)
    names = dict.fromkeys(f"{each}-{compiler}" for each in (triple, f"{arch}-{system}") for compiler in _COMPILERS)
    return Linker(triple, next(filter(which, names), ""))


def _kind(triple: str) -> tuple[str, str]:
    """Architecture and system, without the vendor: ("aarch64", "linux-gnu")."""
    arch, *rest = triple.split("-")
    return arch, "-".join(rest[-2:])
