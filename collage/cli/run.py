"""`collage run`: run a compiled model as a deployed process would. It imports nothing of the compiling side."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer

from collage.cli.exits import guarded
from collage.cli.options import Shapes, Verbose, parse_files, parse_shapes, require_writable
from collage.cli.terminal import quiet

if TYPE_CHECKING:
    import numpy as np

    from collage.runtime import CompiledModel, ModelSet, TensorSpec

_Compiled = Annotated[Path, typer.Argument(metavar="MODEL.so", help="A compiled model.", show_default=False)]
_Files = Annotated[
    list[str] | None, typer.Option("--input", metavar="NAME=FILE.npy", help="An input's value; may be repeated.")
]
_Archive = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="OUT.npz", help="Where to write the outputs.", show_default=False),
]


@guarded
def run(
    model: _Compiled,
    random: Annotated[bool, typer.Option("--random", help="Make up the inputs that are not given.")] = False,
    input: _Files = None,
    shape: Shapes = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse shapes that were not tuned.")] = False,
    output: _Archive = None,
    repeat: Annotated[int, typer.Option(min=0, help="Run this many times more, and print the latency.")] = 0,
    seed: Annotated[int, typer.Option(help="Of the random inputs.")] = 0,
    verbose: Verbose = False,
) -> None:
    """Run a compiled model."""
    files, shapes = parse_files(input), parse_shapes(shape)
    require_writable({"--output": output}, {"the model": model, **{f"--input {n}": p for n, p in files.items()}})
    with quiet(verbose):
        from collage.without_torch import import_tvm_without_torch

        import_tvm_without_torch("tvm_ffi")
        import collage.runtime

        loaded = collage.runtime.load(model, strict)
        models = loaded.models if isinstance(loaded, collage.runtime.ModelSet) else [loaded]
    values = _inputs([each.inputs for each in models], files, shapes, seed if random else None)
    results = loaded(*values)
    outputs = results if isinstance(results, tuple) else (results,)
    for spec, array in zip(loaded.inputs, values, strict=True):
        print(f"input   {replace(spec, shape=array.shape)}")
    for spec, array in zip(loaded.outputs, outputs, strict=True):
        print(f"output  {replace(spec, shape=array.shape)}{_range(array)}")
    if output is not None:
        _save(output, {spec.name: array for spec, array in zip(loaded.outputs, outputs, strict=True)})
        print(f"Wrote {output}")
    if repeat:
        print(f"latency {_latency(loaded, values, repeat)}")


def _inputs(
    choices: Sequence[Sequence[TensorSpec]],
    files: Mapping[str, Path],
    shapes: Mapping[str, tuple[int, ...]],
    seed: int | None,
) -> list[np.ndarray]:
    """The value of each input: from its file, else random when there is a seed. Shapes that are not given are those of
    the first choice that agrees with the others.
    """
    from collage.errors import ModelInputError

    specs = choices[0]
    unknown = sorted({*files, *shapes} - {spec.name for spec in specs})
    if unknown:
        raise ModelInputError(f"the model has no input {', '.join(unknown)}; it takes {', '.join(map(str, specs))}")
    missing = [str(spec) for spec in specs if spec.name not in files]
    if missing and seed is None:
        raise ModelInputError(f"no value for {', '.join(missing)}: give --input NAME=FILE.npy, or --random")
    values = {spec.name: _read(files[spec.name], spec) for spec in specs if spec.name in files}
    given = {**shapes, **{name: value.shape for name, value in values.items()}}
    agreeing = (each for each in choices if all(given.get(spec.name, spec.shape) == spec.shape for spec in each))
    for spec in next(agreeing, specs):
        if spec.name not in values:
            values[spec.name] = _random(replace(spec, shape=given.get(spec.name, spec.shape)), seed or 0)
    return [values[spec.name] for spec in specs]


def _read(path: Path, spec: TensorSpec) -> np.ndarray:
    import numpy as np

    from collage.arrays import with_type
    from collage.errors import ModelInputError

    try:
        value = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise ModelInputError(f"{path}: cannot read input {spec.name}: {reason}") from error
    if not isinstance(value, np.ndarray):
        raise ModelInputError(f"{path}: an archive; input {spec.name} needs one array, as numpy.save writes it")
    return with_type(value)


def _random(spec: TensorSpec, seed: int) -> np.ndarray:
    """Standard normal; integers are 0 or 1, which are legal indices of any table with two rows."""
    import zlib

    import numpy as np

    rng = np.random.default_rng([seed, zlib.crc32(spec.name.encode())])
    if spec.dtype.startswith(("float", "bfloat")):
        return rng.standard_normal(spec.shape).astype(spec.dtype)
    return rng.integers(0, 2, spec.shape).astype(spec.dtype)


def _range(array: np.ndarray) -> str:
    """A glance at the values: enough to see that they are not all zero, or not numbers."""
    if not array.size or array.dtype.kind not in "fiub":
        return ""
    return f"  from {array.min():.6g} to {array.max():.6g}"


def _save(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    import numpy as np

    from collage.errors import CollageError

    try:
        with path.open("wb") as file:
            np.savez(file, allow_pickle=False, **{name: _readable(array) for name, array in arrays.items()})
    except OSError as error:
        raise CollageError(f"{path}: cannot write the outputs: {error.strerror or error}") from error


def _readable(array: np.ndarray) -> np.ndarray:
    """Of a type that NumPy reads again; bfloat16 becomes float32, which has all of its numbers."""
    return array.astype("float32") if array.dtype.name == "bfloat16" else array


def _latency(model: CompiledModel | ModelSet, values: Sequence[np.ndarray], repeat: int) -> str:
    """Median over `repeat` runs, and the middle half, in milliseconds. The first run has warmed up."""
    samples = []
    for _ in range(repeat):
        started = time.perf_counter()
        model(*values)
        samples.append((time.perf_counter() - started) * 1e3)
    samples.sort()
    low, high = samples[len(samples) // 4], samples[(3 * len(samples)) // 4]
    return f"{median(samples):.4g} ms, the median of {repeat} runs (middle half {low:.4g} to {high:.4g} ms)"
