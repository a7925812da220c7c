"""Samples: the inputs, given by the user, on which ranges and errors are measured.

Half of them is searched with, and the other half is held out: the error that is promised is measured on samples that
took no part in the choice.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from collage.arrays import with_type
from collage.errors import ModelInputError
from collage.runtime.tensor_spec import TensorSpec

#: One array for each input of the network, in order.
Sample = tuple[np.ndarray, ...]


def read_samples(source: str | os.PathLike[str] | Any, specs: Sequence[TensorSpec]) -> list[Sample]:
    """The samples of a file or of a sequence.

    Parameters
    ----------
    source
        The path of an `.npz` file, or a mapping, with an array for each input by its name: either with one more leading
        axis, of samples, or with a first axis that is a multiple of the network's. Or a sequence of samples, each with
        one array for each input: a sequence in order, or a mapping by name; of a network with one input just the array.
    specs
        The network's inputs (`collage.frontend.values.input_specs`).

    Raises
    ------
    ModelInputError
        The file cannot be read, an input is missing or unknown, a shape or dtype is not the network's, a number is not
        finite, or there are no samples.
    """
    if isinstance(source, (str, os.PathLike)):
        samples = _stacked(_file(Path(source).expanduser()), specs)
    elif isinstance(source, Mapping):
        samples = _stacked({str(name): _array(value, str(name)) for name, value in source.items()}, specs)
    elif isinstance(source, Iterable):
        samples = [_sample(each, specs, f"sample {i}") for i, each in enumerate(source)]
    else:
        raise ModelInputError(f"samples are the path of an .npz file or a sequence, not a {type(source).__name__}")
    if not samples:
        raise ModelInputError("there are no samples")
    return samples


def read_sample(source: str | os.PathLike[str] | Any, specs: Sequence[TensorSpec]) -> Sample:
    """One sample, of the network's own shapes.

    Parameters
    ----------
    source
        The path of an `.npz` file, or a mapping, with an array for each input by its name; or a sequence of arrays in
        order.
    specs
        As of `read_samples`.

    Raises
    ------
    ModelInputError
        As of `read_samples`.
    """
    if isinstance(source, (str, os.PathLike)):
        source = _file(Path(source).expanduser())
    return _sample(source, specs, "the inputs")


def split(samples: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Those that are searched with, and those that are held out: every second one.

    Raises
    ------
    ModelInputError
        There are fewer than two.
    """
    if len(samples) < 2:
        raise ModelInputError(
            f"two samples at least are needed, one to search with and one to judge by, not {len(samples)}"
        )
    return list(samples[::2]), list(samples[1::2])


def _file(path: Path) -> dict[str, np.ndarray]:
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise ModelInputError(f"{path} holds one array: samples are an .npz file with an array for each input")
        with loaded:
            return {name: with_type(loaded[name]) for name in loaded.files}
    except OSError as error:
        raise ModelInputError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ModelInputError(f"{path} is no .npz file of numbers: {error}".splitlines()[0]) from error


def _stacked(arrays: Mapping[str, np.ndarray], specs: Sequence[TensorSpec]) -> list[Sample]:
    """The samples of arrays that hold several each."""
    ordered = _by_name(arrays, specs, "samples")
    parts = [_parts(array, spec) for array, spec in zip(ordered, specs, strict=True)]
    counts = {spec.name: len(part) for spec, part in zip(specs, parts, strict=True)}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{count} of '{name}'" for name, count in counts.items())
        raise ModelInputError(f"every input needs the same number of samples; there are {listed}")
    return [_checked(sample, specs, f"sample {i}") for i, sample in enumerate(zip(*parts, strict=True))]


def _parts(array: np.ndarray, spec: TensorSpec) -> list[np.ndarray]:
    """The samples of one input."""
    if array.shape[1:] == spec.shape and array.ndim == len(spec.shape) + 1:
        return list(array)
    batch = spec.shape[0] if spec.shape else 0
    if batch and array.ndim == len(spec.shape) and array.shape[1:] == spec.shape[1:] and len(array) % batch == 0:
        return [array[i : i + batch] for i in range(0, len(array), batch)]
    raise ModelInputError(
        f"samples of '{spec.name}' have shape {list(array.shape)}; the network takes {list(spec.shape)}, "
        "with one more axis in front for the samples"
    )


def _sample(given: Any, specs: Sequence[TensorSpec], where: str) -> Sample:
    """One sample from an array for each input."""
    if isinstance(given, Mapping):
        values = _by_name({str(name): value for name, value in given.items()}, specs, where)
    elif len(specs) == 1 and hasattr(given, "shape"):
        values = [given]
    elif isinstance(given, Sequence) and not isinstance(given, (str, bytes)):
        values = list(given)
    else:
        raise ModelInputError(f"{where} is a {type(given).__name__}: a sample has an array for each input")
    if len(values) != len(specs):
        raise ModelInputError(f"{where} has {len(values)} arrays; the network takes {len(specs)} inputs")
    return _checked([_array(v, s.name) for v, s in zip(values, specs, strict=True)], specs, where)


def _by_name(arrays: Mapping[str, Any], specs: Sequence[TensorSpec], where: str) -> list[Any]:
    names = [spec.name for spec in specs]
    if set(arrays) != set(names):
        missing, unknown = sorted(set(names) - set(arrays)), sorted(set(arrays) - set(names))
        what = [f"no '{name}'" for name in missing] + [f"'{name}', which is no input" for name in unknown]
        raise ModelInputError(f"{where}: {', '.join(what)}; the network takes {', '.join(names)}")
    return [arrays[name] for name in names]


def _array(value: Any, name: str) -> np.ndarray:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ModelInputError(f"a sample of '{name}' is no array: {error}".splitlines()[0]) from error
    if array.dtype.hasobject:
        raise ModelInputError(f"a sample of '{name}' is no array of numbers")
    return array


def _checked(arrays: Iterable[np.ndarray], specs: Sequence[TensorSpec], where: str) -> Sample:
    """The sample, if it is one of the network's."""
    result = []
    for array, spec in zip(arrays, specs, strict=True):
        if array.shape != spec.shape or str(array.dtype) != spec.dtype:
            raise ModelInputError(
                f"{where}: '{spec.name}' is {array.dtype}{list(array.shape)}; the network takes {spec}"
            )
        if not np.issubdtype(array.dtype, np.integer) and not np.isfinite(array.astype(np.float64, copy=False)).all():
            raise ModelInputError(f"{where}: '{spec.name}' has numbers that are not finite")
        result.append(np.asarray(array, order="C"))
    return tuple(result)
