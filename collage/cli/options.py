"""Options that several commands share, and functions that parse and check their values before anything is measured."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from collage.errors import CollageError

Model = Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="The network, as an ONNX file.", show_default=False)]
Output = Annotated[
    Path, typer.Option("-o", "--output", metavar="OUT.so", help="The compiled model to write.", show_default=False)
]
Records = Annotated[
    str | None,
    typer.Option(
        metavar="PATH|URL",
        help="The records database: a file, or postgresql+psycopg://host/database.  [default: in the user's cache "
        "folder]",
        show_default=False,
    ),
]
Workers = Annotated[
    str | None,
    typer.Option(
        metavar="tcp://HOST:PORT",
        help="The scheduler of a Dask cluster, whose workers on machines like this one build and time candidates.",
        show_default=False,
    ),
]
Runner = Annotated[
    str | None,
    typer.Option(
        metavar="rpc://HOST:PORT/KEY",
        help="Boards at a tracker of TVM's RPC: kernels of TVM are compiled for such a board, and timed there.",
        show_default=False,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        metavar="'llvm -mtriple=...'",
        help="TVM's target of the board, as 'llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72'; by default the board "
        "is asked.",
        show_default=False,
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape", metavar="INPUT=N,N,...", help="Shape of an input with dynamic dimensions; may be repeated."
    ),
]
ShapeLists = Annotated[
    list[str] | None,
    typer.Option(
        "--shapes",
        metavar="'INPUT=N,N,... INPUT=...'",
        help="Shapes of all inputs of one call; repeat it to tune for several lists, all in one file.",
    ),
]
Batches = Annotated[
    str | None,
    typer.Option(
        "--batch",
        metavar="N,N,...",
        help="Tune for each of these batch sizes: extents of the inputs' dynamic first dimensions.",
        show_default=False,
    ),
]
Parameters = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="WHOSE.NAME=VALUE",
        help="Parameter of a plug-in, as estimator.model=cost.json or searcher.time_limit_s=600; may be repeated.",
    ),
]
Html = Annotated[
    Path | None, typer.Option(metavar="FILE.html", help="Also write the report, a web page.", show_default=False)
]
Details = Annotated[
    bool, typer.Option("--details", help="Also print what runs where, and what sums of costs predicted.")
]
Device = Annotated[str, typer.Option(metavar="cpu|cuda", help="The device that networks are to run on.")]
Devices = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,NAME,...",
        help="Several devices, as cuda,cpu, with inputs and results on the first; by default --device alone.",
        show_default=False,
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show what the libraries print, and tracebacks.")]


def parse_shape_lists(texts: Sequence[str] | None) -> list[dict[str, tuple[int, ...]]]:
    """`["ids=1,64 mask=1,64"]` -> `[{"ids": (1, 64), "mask": (1, 64)}]`. Raises typer.BadParameter."""
    return [parse_shapes(text.replace(";", " ").split(), "--shapes") for text in texts or ()]


def parse_batches(text: str | None) -> list[int]:
    """`"1,8"` -> `[1, 8]`; none of None. Raises typer.BadParameter."""
    try:
        batches = [int(number) for number in text.split(",")] if text is not None else []
    except ValueError:
        batches = [0]
    if any(batch < 1 for batch in batches):
        raise typer.BadParameter(f"{text!r} does not read like 1,8,32", param_hint="--batch")
    return batches


def parse_shapes(texts: Sequence[str] | None, option: str = "--shape") -> dict[str, tuple[int, ...]]:
    """`["input=1,3,224,224"]` -> `{"input": (1, 3, 224, 224)}`. Raises typer.BadParameter."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts or ():
        name, separator, extents = text.rpartition("=")
        try:
            shape = tuple(int(extent) for extent in extents.replace("x", ",").split(",")) if extents else ()
        except ValueError:
            shape = (0,)
        if not separator or not name or any(extent < 1 for extent in shape):
            raise typer.BadParameter(f"{text!r} does not read like input=1,3,224,224", param_hint=option)
        if name in shapes:
            raise typer.BadParameter(f"input {name!r} is given twice", param_hint=option)
        shapes[name] = shape
    return shapes


def parse_parameters(texts: Sequence[str] | None) -> dict[str, dict[str, Any]]:
    """`["searcher.width=64", "estimator.model=cost.json"]` -> `{"searcher": {"width": 64}, "estimator": {"model":
    "cost.json"}}`: values are JSON where they read like it, and text otherwise. Raises typer.BadParameter.
    """
    parameters: dict[str, dict[str, Any]] = {"searcher": {}, "estimator": {}}
    for text in texts or ():
        whole, separator, value = text.partition("=")
        whose, _, name = whole.partition(".")
        if not separator or whose not in parameters or not name.isidentifier():
            raise typer.BadParameter(
                f"{text!r} does not read like searcher.name=value or estimator.name=value", param_hint="--set"
            )
        if name in parameters[whose]:
            raise typer.BadParameter(f"{whole} is given twice", param_hint="--set")
        try:
            parameters[whose][name] = json.loads(value)
        except ValueError:
            parameters[whose][name] = value
    return parameters


def parse_names(text: str | None, option: str) -> list[str] | None:
    """`"tvm,openvino"` -> `["tvm", "openvino"]`; None stays None. Raises typer.BadParameter."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise typer.BadParameter("names at least one", param_hint=option)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise typer.BadParameter(f"{', '.join(twice)} is named twice", param_hint=option)
    return names


def parse_files(texts: Sequence[str] | None) -> dict[str, Path]:
    """`["input=image.npy"]` -> `{"input": Path("image.npy")}`. Raises typer.BadParameter."""
    files: dict[str, Path] = {}
    for text in texts or ():
        name, separator, path = text.partition("=")
        if not separator or not name or not path:
            raise typer.BadParameter(f"{text!r} does not read like input=file.npy", param_hint="--input")
        if name in files:
            raise typer.BadParameter(f"input {name!r} is given twice", param_hint="--input")
        files[name] = Path(path)
    return files


def file_of(records: str | os.PathLike[str] | None) -> Path | None:
    """The file of a records database; None of a server's, and where none is named."""
    return None if records is None or (isinstance(records, str) and "://" in records) else Path(records)


def require_writable(outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None]) -> None:
    """Check that every output can be written, and that none is written over an input or over another output.

    Parameters
    ----------
    outputs, inputs
        Option -> path; None where the option is not given.

    Raises
    ------
    CollageError
        One cannot be written; the message names the option, the path and the reason. Nothing is left behind.
    """
    seen = {path.resolve(): option for option, path in inputs.items() if path is not None}
    for option, path in outputs.items():
        if path is None:
            continue
        other = seen.setdefault(path.resolve(), option)
        if other != option:
            raise CollageError(f"{path}: {option} would overwrite {other}")
        try:
            _probe(path)
        except OSError as error:
            raise CollageError(f"{path}: {option} cannot be written: {error.strerror or error}") from error


def _probe(path: Path) -> None:
    """Raise OSError when a file cannot be written to `path`: a full or read-only disk, or something in the way."""
    if path.exists():
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise OSError(None, "it is a directory" if stat.S_ISDIR(mode) else "it is not a regular file")
        os.close(os.open(path, os.O_WRONLY))
    folder = path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        raise OSError(None, f"{folder} is not a directory")
    with tempfile.TemporaryFile(dir=folder, prefix=".collage-") as file:
        file.write(bytes(4096))
        file.flush()
        os.fsync(file.fileno())
