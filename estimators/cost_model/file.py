"""Cost models on disk: one JSON file, data and nothing else, so that loading one executes nothing.

| field | meaning |
|---|---|
| `format`, `version` | `collage-cost-model` and the version of this schema |
| `feature_version`, `work_features`, `total_features` | which features the model takes, in their order |
| `libraries` | versions of what made the model |
| `training` | fingerprint and number of the records, and what was left out |
| `device`, `device_info`, `protocol` | where and how the latencies were measured |
| `parameters` | the model's constructor parameters |
| `backends` | backend -> its costs per unit of work, trees (XGBoost's own JSON), quantile, shift, reach |
| `contrasts` | two backends and trees, for each two that take the same workloads |
| `calibrations` | backend -> coefficients and widening, where the model was adapted to another machine |
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collage.errors import CollageError
from estimators.features.columns import FEATURE_VERSION, TOTAL_NAMES, WORK_NAMES

FORMAT = "collage-cost-model"
VERSION = 3
_FIELDS = {
    "libraries": dict,
    "training": dict,
    "device": str,
    "device_info": dict,
    "protocol": str,
    "parameters": dict,
    "backends": dict,
    "contrasts": list,
    "calibrations": dict,
}


def write_model(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Write a model; the file is replaced only once the new one is whole. A name that ends in `.gz` compresses it.

    Raises
    ------
    CollageError: it cannot be written.
    """
    target = Path(path).expanduser()
    header = {
        "format": FORMAT,
        "version": VERSION,
        "feature_version": FEATURE_VERSION,
        "work_features": list(WORK_NAMES),
        "total_features": list(TOTAL_NAMES),
    }
    text = json.dumps({**header, **content}, separators=(",", ":"), allow_nan=False).encode()
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(gzip.compress(text, mtime=0) if target.suffix == ".gz" else text)
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise CollageError(f"{target} cannot be written ({error.strerror or error}): choose another file") from error


def read_model(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The content of a model file of this version.

    Raises
    ------
    CollageError: it cannot be read, is cut off, is no cost model, or is of another version.
    """
    source = Path(path).expanduser()
    again = "train it again with `collage train`"
    try:
        raw = source.read_bytes()
        content = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile):
            raise CollageError(f"{source} is damaged ({error}): {again}") from error
        raise CollageError(f"{source}: the cost model cannot be read: {error.strerror or error}") from error
    except (ValueError, EOFError, RecursionError) as error:
        raise CollageError(f"{source} is no cost model, or was cut off ({error}): {again}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CollageError(f"{source} is no cost model: `collage train LOGS -o {source.name}` makes one")
    if content.get("version") != VERSION:
        raise CollageError(f"{source} is a cost model of version {content.get('version')}, not {VERSION}: {again}")
    if content.get("feature_version") != FEATURE_VERSION:
        raise CollageError(
            f"{source} was trained on features of version {content.get('feature_version')}, not {FEATURE_VERSION}: "
            f"{again}"
        )
    if content.get("work_features") != list(WORK_NAMES) or content.get("total_features") != list(TOTAL_NAMES):
        raise CollageError(f"{source} was trained on other features than these: {again}")
    for name, kind in _FIELDS.items():
        if not isinstance(content.get(name), kind):
            raise CollageError(f"{source} is a damaged cost model: its field {name!r} is missing or malformed: {again}")
    return content
