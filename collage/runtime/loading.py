"""`load`: from the file that the compiling side exported to a network that can be called."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tvm_ffi

from collage.errors import CompiledModelError, last_line
from collage.runtime import engines
from collage.runtime.dynamic import DynamicModel
from collage.runtime.library_file import is_compiled_model, is_cut_off
from collage.runtime.model import CompiledModel
from collage.runtime.model_set import ModelSet
from collage.runtime.packed_file import PackedFile, is_packed
from collage.runtime.tvm_library import load_runtime_library

#: The network as it is in the user's file, in a packed file.
DYNAMIC = "model.onnx"
#: Modules of accelerators stay: what unloading them does to captured graphs was never seen on a device.
_KEPT: list[Any] = []


def load(path: str | Path, strict: bool = False) -> CompiledModel | ModelSet:
    """Load a model that was exported by Collage's compiling side.

    A compiled model is a program: loading it runs code of the file. Whether Collage wrote it is looked up in the file
    before anything of it runs, which protects from mistakes, not from malice.

    Parameters
    ----------
    path
        The file.
    strict
        Refuse shapes that were not tuned, also where the file has an engine for them.

    Returns
    -------
    CompiledModel | ModelSet
        The second where the file holds plans for several shapes. Both are called alike.

    Raises
    ------
    CompiledModelError
        The file is missing, is not a compiled model, or needs a run-time library that is not installed.
    """
    file = Path(path)
    if not file.is_file():
        raise CompiledModelError(f"{file}: {'is a directory' if file.is_dir() else 'no such file'}")
    return _load_packed(file, strict) if is_packed(file) else _load_library(file)


def _load_packed(path: Path, strict: bool) -> ModelSet:
    packed = PackedFile.open(path)
    models = []
    for name in packed.files:
        if name == DYNAMIC:
            continue
        try:
            # The system's loader takes libraries from files only. What it has mapped stays when the file goes.
            with TemporaryDirectory(prefix="collage-") as folder:
                packed.extract(name, Path(folder) / name)
                models.append(_load_library(Path(folder) / name))
        except CompiledModelError as error:
            raise CompiledModelError(f"{path}: {error}") from error
        except OSError as error:
            raise CompiledModelError(
                f"{path}: cannot be unpacked to the folder of temporary files (TMPDIR): {error.strerror or error}"
            ) from error
    facts = packed.about.get("dynamic")
    dynamic = None if facts is None else DynamicModel(lambda: packed.read(DYNAMIC), facts)
    return ModelSet(models, dynamic, strict)


def _load_library(file: Path) -> CompiledModel:
    if is_cut_off(file):
        raise CompiledModelError(f"{file}: its end is missing: copy or compile the model again")
    if not is_compiled_model(file):
        raise CompiledModelError(f"{file}: not a model compiled by Collage")
    load_runtime_library()
    engines.register()
    try:
        module = _opened(file.resolve())
        describe = module.get_function("collage_metadata", query_imports=True)
    except (RuntimeError, ValueError, AttributeError, OSError) as error:
        raise CompiledModelError(f"{file}: not a model compiled by Collage ({last_line(error)})") from error
    metadata = json.loads(describe())
    if metadata.get("device", "cpu") != "cpu":
        _KEPT.append(module)
    engines.require(metadata["engines"])
    return CompiledModel(module, metadata)


def _opened(file: Path) -> Any:
    try:
        return tvm_ffi.load_module(str(file), keep_module_alive=False)
    except RuntimeError:
        if "tvm" in sys.modules:
            raise
        # What reads the kernels of an accelerator comes with the rest of TVM.
        import_module("tvm")
        return tvm_ffi.load_module(str(file), keep_module_alive=False)
