"""The cost models that ship with Collage, one for each machine that it was measured on, and which of them serves where.

A machine gets its own; any other the one whose processor has most instruction sets in common with it (Jaccard's index),
which is a guess: `collage train LOGS --calibrate shipped` adapts it in a minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from importlib.resources import as_file, files
from typing import Any

from collage.errors import CollageError
from collage.runtime.device_info import DeviceInfo, describe_device
from estimators.cost_model.file import device_of
from estimators.cost_model.model import CostModel

#: Folder of the models, in the package `estimators`.
FOLDER = "data"


def shipped(device: DeviceInfo | Mapping[str, Any] | None = None) -> CostModel:
    """The shipped model for a machine.

    Parameters
    ----------
    device
        Described by `collage.runtime.device_info`, or as records describe it, as far as known; None is this machine.

    Raises
    ------
    CollageError
        The installation lacks them.
    """
    device = describe_device() if device is None else device
    wanted = device.as_dict() if isinstance(device, DeviceInfo) else device
    with ExitStack() as stack:
        found = sorted(files("estimators").joinpath(FOLDER).iterdir(), key=lambda file: file.name)
        paths = [stack.enter_context(as_file(file)) for file in found if file.name.endswith(".json.gz")]
        if not paths:
            raise CollageError("this installation of Collage lacks the cost models that ship with it: install it again")
        return CostModel.load(max(paths, key=lambda path: _likeness(device_of(path), wanted)))


def _likeness(device: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[bool, bool, float]:
    same = [device.get(field) == wanted.get(field) for field in ("fingerprint", "kind")]
    ours, theirs = (set(each.get("features", ())) for each in (device, wanted))
    return same[0], same[1], len(ours & theirs) / max(1, len(ours | theirs))
