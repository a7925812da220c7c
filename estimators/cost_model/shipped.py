"""The cost models that ship with Collage, one for each measured machine, and which of them serves on a given machine.

A machine gets its own model; otherwise the one whose processor has most instruction sets in common with it (Jaccard's
index). A model is *related* if its machine is of the same kind and architecture. It is *near* if they also have most
instruction sets in common, so that the same kernels are chosen on both, and if it was learned from about as many
threads. A near model needs a few measurements to become the machine's own (`estimators.cost_model.calibration`). A
related one needs more. Any other is a guess.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from collage.errors import CollageError
from collage.runtime.device_info import DeviceInfo, describe_device
from estimators.cost_model.file import Header, read_header
from estimators.cost_model.model import CostModel

#: Folder of the models, in the package `estimators`.
FOLDER = "data"
#: Processors are near that have this share of their instruction sets in common. AVX-512 and its extensions are a third
#: of those of a processor that has them: one without it, or with its first version only, is not near one with them.
_NEAR = 0.75
#: Numbers of threads are near that differ by no more than this factor.
_THREADS = 2.0

Device = DeviceInfo | Mapping[str, Any]


def shipped(device: Device | None = None, backends: Collection[str] = ()) -> CostModel:
    """The shipped model for a machine.

    Parameters
    ----------
    device
        Described by `collage.runtime.device_info`, or as records describe it, as far as known; None is this machine.
    backends
        Those that it has to know, where one of the models knows all of them.

    Raises
    ------
    CollageError
        The installation lacks them.
    """
    with _best(_fields(device), backends) as (path, _):
        return CostModel.load(path)


def nearest(device: Device | None, backends: Collection[str], threads: int) -> str | None:
    """The machine of the model that `shipped` gives, if it is near; None where it is not. No model is read for it.

    Raises as `shipped`.
    """
    with _best(_fields(device), backends) as (_, header):
        known, own = _knows(header, backends), header.device_info
        near = known and is_near(own, header.training.get("threads", []), device, threads)
        return str(own.get("model") or own.get("fingerprint")) if near else None


def related(device: Device | None, backends: Collection[str]) -> bool:
    """Whether the model that `shipped` gives is of a machine of the same kind and architecture, and knows all backends.

    Raises as `shipped`.
    """
    wanted = _fields(device)
    with _best(wanted, backends) as (_, header):
        return _knows(header, backends) and _related(header.device_info, wanted)


def is_near(own: Mapping[str, Any], known: Collection[int], device: Device | None, threads: int) -> bool:
    """Whether a model of the machine `own`, learned from so many threads, is near a machine and a number of threads."""
    wanted = _fields(device)
    return (
        _related(own, wanted)
        and _in_common(own, wanted) >= _NEAR
        and any(1 / _THREADS <= threads / count <= _THREADS for count in known)
    )


@contextmanager
def _best(wanted: Mapping[str, Any], backends: Collection[str]) -> Iterator[tuple[Path, Header]]:
    """The file of the model that is most like a machine, and its header."""
    with ExitStack() as stack:
        found = sorted(files("estimators").joinpath(FOLDER).iterdir(), key=lambda file: file.name)
        paths = [stack.enter_context(as_file(file)) for file in found if file.name.endswith(".json.gz")]
        if not paths:
            raise CollageError("this installation of Collage lacks the cost models that ship with it: install it again")
        headers = {path: read_header(path) for path in paths}
        best = max(paths, key=lambda path: (_knows(headers[path], backends), *_likeness(headers[path], wanted)))
        yield best, headers[best]


def _fields(device: Device | None) -> Mapping[str, Any]:
    device = describe_device() if device is None else device
    return device.as_dict() if isinstance(device, DeviceInfo) else device


def _knows(header: Header, backends: Collection[str]) -> bool:
    return set(backends) <= set(header.backends)


def _related(own: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(own.get(field) == wanted.get(field) for field in ("kind", "arch"))


def _likeness(header: Header, wanted: Mapping[str, Any]) -> tuple[bool, bool, float]:
    own = header.device_info
    same = [own.get(field) == wanted.get(field) for field in ("fingerprint", "kind")]
    return same[0], same[1], _in_common(own, wanted)


def _in_common(device: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Share of the instruction sets of two processors that both have."""
    ours, theirs = (set(each.get("features", ())) for each in (device, other))
    return len(ours & theirs) / max(1, len(ours | theirs))
