"""From names to instances: the backends of a device that the user asks for."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from collage import plugins
from collage.annotations.precision import FLOAT32
from collage.backends.base import Backend
from collage.errors import BackendUnavailableError, PluginError


def resolve_backends(
    wanted: Sequence[str | Backend] | None, device: str = "cpu", precisions: Collection[str] = (FLOAT32,)
) -> dict[str, Backend]:
    """Name -> backend, available ones of one device only, in the order of their declared priority.

    Parameters
    ----------
    wanted
        Names or instances; a name that is not of the device stands for the name with the device's behind it, such as
        "tvm" for "tvm-cuda". None is every backend of the device that is available here; a plug-in that does not import
        is then passed over.
    device
        "cpu" or "cuda".
    precisions
        Of the backends that None stands for.

    Raises
    ------
    PluginError
        A name is unknown. BackendUnavailableError: one that was asked for cannot be used here or is of another device,
        or none can be used.
    """
    found = available_backends(device, precisions) if wanted is None else [_of_device(b, device) for b in wanted]
    for backend in found:
        if backend.device != device:
            raise BackendUnavailableError(
                f"backend {backend.name} runs on {backend.device}, not on {device}: give device={backend.device!r}, "
                f"or choose a backend of {device}"
            )
    return _checked(found, device)


def _checked(found: Sequence[Backend], device: str) -> dict[str, Backend]:
    """Name -> backend, once each can be used here, and together with the others."""
    for backend in found:
        state = backend.availability()
        if not state.available:
            raise BackendUnavailableError(f"backend {backend.name}: {state.reason}")
    names = [b.name for b in found]
    if not names:
        raise BackendUnavailableError(
            f"no backend of {device} is available: `collage backends` says what each one lacks"
        )
    if len(set(names)) < len(names):
        raise PluginError(
            f"two backends have the same name: {', '.join(sorted(n for n in names if names.count(n) > 1))}"
        )
    for backend in found:
        clashes = sorted(backend.incompatible & set(names))
        if clashes:
            raise BackendUnavailableError(
                f"{backend.name} cannot live in one process with {', '.join(clashes)}: choose one"
            )
    return {b.name: b for b in sorted(found, key=lambda b: (b.priority, b.name))}


def resolve_on(
    wanted: Sequence[str | Backend] | None, devices: Sequence[str], precisions: Collection[str] = (FLOAT32,)
) -> dict[str, Backend]:
    """Name -> backend of one of several devices, in the order of their declared priority.

    Parameters
    ----------
    wanted
        Names or instances; a name of which several devices have a variant stands for that of the first one. None is
        every backend that is available here.
    devices
        Names; inputs and results are on the first one.
    precisions
        Of the backends that None stands for.

    Raises
    ------
    PluginError, BackendUnavailableError
        As of `resolve_backends`.
    """
    home, *others = devices
    if not others:
        return resolve_backends(wanted, home, precisions)
    if wanted is None:
        found = [b for d in devices for b in available_backends(d, precisions)]
    else:
        found = [_of_devices(b, devices) for b in wanted]
    elsewhere = [b for b in found if b.device not in devices]
    if elsewhere:
        raise BackendUnavailableError(
            f"backend {elsewhere[0].name} runs on {elsewhere[0].device}, which is not among {', '.join(devices)}"
        )
    return _checked(found, " or ".join(devices))


def _of_devices(wanted: str | Backend, devices: Sequence[str]) -> Backend:
    """The backend that is meant on the first of the devices that it has a variant for."""
    variants = [_of_device(wanted, device) for device in devices]
    return next((b for b, device in zip(variants, devices, strict=True) if b.device == device), variants[0])


def available_backends(device: str, precisions: Collection[str] = (FLOAT32,)) -> list[Backend]:
    """Every registered backend of a device that can be used here, and computes in one of some precisions. Plug-ins that
    do not import harm nobody.
    """
    found: list[Backend] = []
    for name in plugins.names("backends"):
        try:
            backend = plugins.load("backends", name)
        except PluginError:
            continue
        if backend.device == device and backend.precision in precisions and backend.availability().available:
            found.append(backend)
    return found


def _of_device(wanted: str | Backend, device: str) -> Backend:
    """The backend that is meant on a device; one of another device where there is no other of that name."""
    named = f"{wanted}-{device}"
    if not isinstance(wanted, str) or named not in plugins.names("backends"):
        backend: Backend = plugins.load("backends", wanted)
        return backend
    if wanted in plugins.names("backends"):
        backend = plugins.load("backends", wanted)
        if backend.device == device:
            return backend
    other: Backend = plugins.load("backends", named)
    return other
