"""The cost models that ship with Collage, one for each machine that it was measured on, and which of them serves where.

A machine gets its own; any other the one whose processor has most instruction sets in common with it (Jaccard's index),
which is a guess: `collage train LOGS --calibrate shipped` adapts it in a minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import as_file, files
from typing import Any, TypeVar

from collage.errors import CollageError
from collage.runtime.device_info import DeviceInfo, describe_device
from estimators.cost_model.file import read_model
from estimators.cost_model.model import CostModel

#: Folder of the models, in the package `estimators`.
FOLDER = "data"
_ENDING = ".json.gz"
_Model = TypeVar("_Model", bound=CostModel)


def shipped(device: DeviceInfo | Mapping[str, Any] | None = None, kind: type[_Model] = CostModel) -> _Model:  # type: ignore[assignment]
    """The shipped model for a machine.

    Parameters
    ----------
    device: described by `collage.runtime.device_info`, or as records describe it, as far as known; None is this
    machine. kind: class of the model.

    Raises
    ------
    CollageError: the installation lacks them.
    """
    device = describe_device() if device is None else device
    wanted = device.as_dict() if isinstance(device, DeviceInfo) else device
    contents = {}
    for resource in sorted(files("estimators").joinpath(FOLDER).iterdir(), key=lambda f: f.name):
        if resource.name.endswith(_ENDING):
            with as_file(resource) as path:
                contents[resource.name] = read_model(path)
    if not contents:
        raise CollageError("this installation of Collage lacks the cost models that ship with it: install it again")
    best = max(contents, key=lambda name: _likeness(contents[name]["device_info"], wanted))
    return kind.from_content(contents[best], best)


def _likeness(device: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[bool, bool, float]:
    same = [device.get(field) == wanted.get(field) for field in ("fingerprint", "kind")]
    ours, theirs = (set(each.get("features", ())) for each in (device, wanted))
    return same[0], same[1], len(ours & theirs) / max(1, len(ours | theirs))
