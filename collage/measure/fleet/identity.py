"""Identity: everything that has to be equal on two machines, so that a measurement on one counts for the other.

Records of both then have one key: the fingerprint of the device, the versions of TVM and of the libraries behind the
backends, and the code that builds candidates (`collage.records.key`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from threading import Lock

from collage.annotations.precision import PRECISIONS
from collage.backends.code import configuration_of
from collage.backends.resolve import available_backends
from collage.measure.host import host_id
from collage.records.key import digest_of
from collage.records.record import software_versions
from collage.runtime.device_info import describe_device

#: The code of backends is parsed, which Python 3.11 does not do in two threads at a time.
_PARSING = Lock()


@dataclass(frozen=True)
class Identity:
    """Of one process on one machine.

    Attributes
    ----------
    host
        See `collage.measure.host`. It may differ.
    fingerprint
        Of the processor.
    versions
        Of Python, TVM, Collage and so on.
    backends
        Version and configuration of each backend that is available there.
    """

    host: str
    fingerprint: str
    versions: Mapping[str, str]
    backends: Mapping[str, str]


def identity() -> Identity:
    """Of this process."""
    with _PARSING:
        return _identity()


@cache
def _identity() -> Identity:
    backends = available_backends("cpu", PRECISIONS)
    return Identity(
        host=host_id(),
        fingerprint=describe_device().fingerprint,
        versions=software_versions(),
        backends={b.name: f"{b.version()} {digest_of(configuration_of(b))}" for b in backends},
    )


def difference(ours: Identity, theirs: Identity) -> str:
    """In what a worker is not like this machine, in a few words; "" where it is. It may have more backends."""
    if ours.fingerprint != theirs.fingerprint:
        return f"its processor is {theirs.fingerprint}, not {ours.fingerprint}"
    for name, version in ours.versions.items():
        if theirs.versions.get(name) != version:
            return f"it has {name} {theirs.versions.get(name)}, not {version}"
    for name, version in ours.backends.items():
        if theirs.backends.get(name) != version:
            return f"its {name} is {theirs.backends.get(name, 'missing')}, not {version}"
    return ""
