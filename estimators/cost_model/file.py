"""Cost models on disk: one JSON file, data and nothing else, so that loading one executes nothing."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from pathlib import Path
from typing import Any

import msgspec

from collage.errors import CollageError
from collage.files import replacing
from estimators.cost_model.analytic import Analytic
from estimators.cost_model.backend import BackendModel
from estimators.cost_model.calibration import Calibration
from estimators.cost_model.pairwise_ratio import PairwiseRatio
from estimators.cost_model.trees import Trees
from estimators.features.columns import FEATURE_VERSION, WORK_NAMES
from estimators.features.workload import TOTAL_NAMES

FORMAT = "collage-cost-model"
VERSION = 3
#: Bytes of a model when it is unpacked; those that ship have a few million.
MAX_BYTES = 1 << 28


class Header(msgspec.Struct, frozen=True):
    """What says whether a file can be read, and of which machine it is.

    Attributes
    ----------
    format, version
        `collage-cost-model`, and the version of this schema.
    feature_version, work_features, total_features
        Which features the model takes, in their order.
    device_info
        The machine on which the latencies were measured.
    parameters
        The model's constructor parameters.
    training
        Facts about the records, among them their numbers of threads.
    backends
        Backend -> its model, not read.
    """

    format: Any = None
    version: Any = None
    feature_version: Any = None
    work_features: Any = None
    total_features: Any = None
    device_info: dict[str, Any] = {}
    parameters: dict[str, Any] = {}
    training: dict[str, Any] = {}
    backends: dict[str, msgspec.Raw] = {}


class ModelFile(msgspec.Struct, frozen=True, eq=False, kw_only=True, rename={"ratios": "contrasts"}):
    """A model file; the first five fields, `device_info` and `parameters` are those of `Header`.

    Attributes
    ----------
    libraries
        Versions of what made the model.
    training
        Fingerprint and number of the records, and what was left out.
    device, protocol
        Where and how the latencies were measured.
    backends
        Backend -> its model.
    ratios
        Two backends and trees, for each two that take the same workloads.
    calibrations
        Backend -> calibration, where the model was adapted to another machine.
    """

    format: str = FORMAT
    version: int = VERSION
    feature_version: int = FEATURE_VERSION
    work_features: tuple[str, ...] = WORK_NAMES
    total_features: tuple[str, ...] = TOTAL_NAMES
    libraries: dict[str, str]
    training: dict[str, Any]
    device: str
    device_info: dict[str, Any]
    protocol: str
    parameters: dict[str, Any]
    backends: dict[str, BackendModel]
    ratios: tuple[PairwiseRatio, ...]
    calibrations: dict[str, Calibration]

    def __post_init__(self) -> None:
        if not {name for ratio in self.ratios for name in (ratio.first, ratio.second)} <= set(self.backends):
            raise ValueError("its contrasts are of backends that it does not know")


def write_model(path: str | os.PathLike[str], content: ModelFile) -> None:
    """Write a model; the file is replaced only once the new one is whole. A name that ends in `.gz` compresses it.

    Raises
    ------
    CollageError
        It cannot be written.
    """
    target = Path(path).expanduser()
    text = msgspec.json.encode(content, enc_hook=lambda part: part.to_builtins())
    try:
        with replacing(target) as partial:
            partial.write_bytes(gzip.compress(text, mtime=0) if target.suffix == ".gz" else text)
    except OSError as error:
        raise CollageError(f"{target} cannot be written ({error.strerror or error}): choose another file") from error


def read_model(path: str | os.PathLike[str]) -> ModelFile:
    """A model file of this version.

    Raises
    ------
    CollageError
        It cannot be read, is cut off, is no cost model, or is of another version.
    """
    text = _text(path)
    threads = _header(text, path).parameters.get("threads", 1)

    def part(kind: type, content: Any) -> Any:
        return Trees.from_builtins(content, threads) if kind is Trees else Analytic.from_builtins(content)

    try:
        return msgspec.json.decode(text, type=ModelFile, dec_hook=part)
    except (msgspec.MsgspecError, TypeError, RecursionError) as error:
        raise damaged(path, error) from error


def read_header(path: str | os.PathLike[str]) -> Header:
    """What a model file says of itself; the model is not read. Raises as `read_model`."""
    return _header(_text(path), path)


def damaged(path: str | os.PathLike[str], error: Exception) -> CollageError:
    return CollageError(f"{path} is a damaged cost model ({error}): train it again with `collage train`")


def _text(path: str | os.PathLike[str]) -> bytes:
    source = Path(path).expanduser()
    try:
        raw = source.read_bytes()
        text = gzip.GzipFile(fileobj=io.BytesIO(raw)).read(MAX_BYTES + 1) if raw[:2] == b"\x1f\x8b" else raw
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise damaged(source, error) from error
    except OSError as error:
        raise CollageError(f"{source}: the cost model cannot be read: {error.strerror or error}") from error
    if len(text) > MAX_BYTES:
        raise CollageError(f"{source} is no cost model: it is of more than {MAX_BYTES:,} bytes")
    return text


def _header(text: bytes, path: str | os.PathLike[str]) -> Header:
    again = "train it again with `collage train`"
    try:
        header = msgspec.json.decode(text, type=Header)
    except msgspec.ValidationError as error:
        raise damaged(path, error) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise CollageError(
            f"{path} is no cost model, or a damaged cost model that was cut off ({error}): {again}"
        ) from error
    if header.format != FORMAT:
        raise CollageError(f"{path} is no cost model: `collage train LOGS -o {Path(path).name}` makes one")
    if header.version != VERSION:
        raise CollageError(f"{path} is a cost model of version {header.version}, not {VERSION}: {again}")
    if header.feature_version != FEATURE_VERSION:
        raise CollageError(
            f"{path} was trained on features of version {header.feature_version}, not {FEATURE_VERSION}: {again}"
        )
    if (header.work_features, header.total_features) != (list(WORK_NAMES), list(TOTAL_NAMES)):
        raise CollageError(f"{path} was trained on other features than these: {again}")
    return header
