"""RecordKey: everything that a cost depends on (invariant 6 of the architecture).

Two measurements share a key only when nothing that could change the cost differs between them: a change of software,
machine, threads or measuring protocol gives another key: a miss, never a wrong hit.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

import msgspec

from collage.annotations.precision import INT8
from collage.backends.code import configuration_of, equivalent_configurations
from collage.errors import RecordsError
from collage.runtime.device_info import DeviceInfo

if TYPE_CHECKING:
    from collage.backends.base import Backend
    from collage.cost.estimator import Workload

#: What was measured: one candidate partition, a whole partitioned network, a transition between two backends, the error
#: that one operator in less precision adds to a network's outputs, or what a network's values range over.
Kind = Literal["candidate", "plan", "transition", "sensitivity", "calibration"]
KINDS: tuple[str, ...] = get_args(Kind)
#: Levels of lists and objects inside each other that a record may have. A workload's description has seven.
MAX_DEPTH = 64
Composites = tuple[tuple[str, tuple[int, ...]], ...]


class AsDict(Protocol):
    """A measuring protocol, or anything else that gives its parameters as a JSON-ready dictionary."""

    def as_dict(self) -> Mapping[str, Any]: ...


Device = DeviceInfo | str
MeasuringProtocol = Mapping[str, Any] | AsDict


@dataclass(frozen=True)
class RecordKey:
    """What was measured, with what, where and how.

    Attributes
    ----------
    kind
        "candidate", "plan", "transition", "sensitivity" or "calibration".
    structure
        Hash of what was measured: operators, attributes, shapes and dtypes (see `Workload.structure`).
    backend
        Name of the backend; for a plan all of them, sorted, joined by "+"; for a transition "producer->consumer"; for
        a calibration none.
    backend_version
        Version of the library behind it; where there are several, of each, joined likewise.
    configuration
        Digest of the backend's settings (`Backend.configuration`).
    composites
        (label, positions of operators) of the library patterns inside; empty but for candidates.
    device
        Fingerprint of the machine (`DeviceInfo.fingerprint`).
    threads
        Number of threads of the deployment.
    tvm_version
        Of the compiler and of the virtual machine that runs the result.
    protocol
        How it was measured, as canonical JSON: name, version and parameters such as cold or hot weights.
    equivalent
        Configurations under which the same was built (`collage.backends.code`): a record of one of them serves where
        there is none of this. No part of the key's identity.
    """

    kind: Kind
    structure: str
    backend: str
    backend_version: str
    configuration: str
    composites: Composites
    device: str
    threads: int
    tvm_version: str
    protocol: str
    equivalent: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise RecordsError(f"a record is of kind {', '.join(KINDS)}, not {self.kind!r}")
        if type(self.threads) is not int or self.threads < 1:
            raise RecordsError(f"a number of threads is a positive integer, not {self.threads!r}")

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the canonical JSON of all fields, in hexadecimal; the same in every process."""
        # The protocol is canonical JSON already: thousands of keys are looked up, each with alternatives.
        fields = (f'"{n}":{self.protocol if n == "protocol" else _encode(getattr(self, n))}' for n in sorted(_NAMES))
        return hashlib.sha256(f"{{{','.join(fields)}}}".encode()).hexdigest()

    @cached_property
    def alternatives(self) -> tuple[RecordKey, ...]:
        """This key, then those of equivalent configurations."""
        return (self, *(replace(self, configuration=known, equivalent=()) for known in self.equivalent))

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready, with the protocol as an object: the `key` of a line of a benchmark log."""
        return {**{name: getattr(self, name) for name in _NAMES}, "protocol": json.loads(self.protocol)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RecordKey:
        """The inverse of `as_dict`. Raises RecordsError when a field is missing, unknown or of the wrong type."""
        require_fields(values, _NAMES, "a key")
        with field_errors("a key"):
            return msgspec.convert({**values, "protocol": canonical_json(values["protocol"])}, cls)


#: The fields that identify a key.
_NAMES = tuple(f.name for f in fields(RecordKey) if f.compare)


def require_fields(values: object, names: Collection[str], what: str) -> None:
    """Raise RecordsError unless `values` is a dictionary with exactly these names."""
    found = set(values) if isinstance(values, dict) else set()
    if found != set(names):
        missing, unknown = sorted(set(names) - found), sorted(found - set(names))
        raise RecordsError(f"{what} has the fields {', '.join(names)}: missing {missing}, unknown {unknown}")


@contextmanager
def field_errors(what: str) -> Iterator[None]:
    """Turn what msgspec raises into a RecordsError that names the field, as `$.operators[3]`."""
    try:
        yield
    except msgspec.ValidationError as error:
        raise RecordsError(f"{what} is malformed: {error}") from None


def keys_of(workloads: Sequence[Workload], device: Device, protocol: MeasuringProtocol) -> list[RecordKey]:
    """The key of each workload; every backend is asked for its version and configuration once.

    Raises
    ------
    RecordsError
        A configuration or the protocol holds something that JSON cannot.
    """
    backends = {id(workload.backend): workload.backend for workload in workloads}
    versions = {i: backend.version() for i, backend in backends.items()}
    configurations = {i: digest_of(configuration_of(backend)) for i, backend in backends.items()}
    equivalent = {i: tuple(map(digest_of, equivalent_configurations(backend))) for i, backend in backends.items()}
    tvm, how = tvm_version(), protocol_json(protocol)
    return [
        RecordKey(
            kind="candidate",
            structure=workload.structure,
            backend=workload.backend.name,
            backend_version=versions[id(workload.backend)],
            configuration=configurations[id(workload.backend)],
            composites=tuple((label, tuple(positions)) for label, positions in workload.composites),
            device=_fingerprint(device),
            threads=workload.threads,
            tvm_version=tvm,
            protocol=how,
            # Declared is what is the same in float32: around products in eight bits earlier code wrote otherwise.
            equivalent=()
            if any(label == INT8 for label, _ in workload.composites)
            else equivalent[id(workload.backend)],
        )
        for workload in workloads
    ]


def key_of(workload: Workload, device: Device, protocol: MeasuringProtocol) -> RecordKey:
    """The key under which the cost of a candidate is recorded (`keys_of` is faster for many)."""
    return keys_of([workload], device, protocol)[0]


def plan_key(
    structure: str, backends: Sequence[Backend], device: Device, threads: int, protocol: MeasuringProtocol
) -> RecordKey:
    """The key of a partitioned network's end-to-end latency; `structure` is a digest of network and partitioning.

    A latency of earlier code is not looked for: the combinations of several backends' earlier code are many.
    """
    ordered = sorted(backends, key=lambda backend: backend.name)
    codes = [[canonical_json(configuration_of(backend))] for backend in ordered]
    return _key_of_several("plan", structure, ordered, codes, "+", device, threads, protocol)


def transition_key(
    structure: str, producer: Backend, consumer: Backend, device: Device, threads: int, protocol: MeasuringProtocol
) -> RecordKey:
    """The key of the cost of handing a tensor from one backend to another; `structure` says which tensor it was."""
    pair = [producer, consumer]
    codes = [[canonical_json(c) for c in (configuration_of(b), *equivalent_configurations(b))] for b in pair]
    return _key_of_several("transition", structure, pair, codes, "->", device, threads, protocol)


def sensitivity_key(
    structure: str, backend: Backend, device: Device, threads: int, protocol: MeasuringProtocol
) -> RecordKey:
    """The key of the error that an operator of a network adds in less precision, on the backend that computes it;
    `structure` is a digest of the network, its weights, the samples, the operator and the precision.
    """
    codes = [[canonical_json(c) for c in (configuration_of(backend), *equivalent_configurations(backend))]]
    return _key_of_several("sensitivity", structure, [backend], codes, "", device, threads, protocol)


def calibration_key(structure: str, device: Device, threads: int, protocol: MeasuringProtocol) -> RecordKey:
    """The key of what a network's values range over, by TVM; `structure` is a digest of the network, its weights and
    the samples.
    """
    return _key_of_several("calibration", structure, [], [], "", device, threads, protocol)


def _key_of_several(
    kind: Kind,
    structure: str,
    backends: Sequence[Backend],
    configurations: Sequence[Sequence[str]],
    joint: str,
    device: Device,
    threads: int,
    protocol: MeasuringProtocol,
) -> RecordKey:
    """With the configurations of each backend as JSON, the present one first."""
    present, *earlier = (_digest(f"[{','.join(each)}]") for each in product(*configurations))
    return RecordKey(
        kind=kind,
        structure=structure,
        backend=joint.join(backend.name for backend in backends),
        backend_version=joint.join(backend.version() for backend in backends),
        configuration=present,
        composites=(),
        device=_fingerprint(device),
        threads=threads,
        tvm_version=tvm_version(),
        protocol=protocol_json(protocol),
        equivalent=tuple(earlier),
    )


def _fingerprint(device: Device) -> str:
    return device if isinstance(device, str) else device.fingerprint


def protocol_json(protocol: MeasuringProtocol) -> str:
    """The measuring protocol as it stands in a key: canonical JSON of a mapping, or of what `as_dict()` gives."""
    return canonical_json(protocol if isinstance(protocol, Mapping) else protocol.as_dict())


def digest_of(value: Any) -> str:
    """Sixteen hexadecimal digits that identify a JSON-ready value."""
    return _digest(canonical_json(value))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def canonical_json(value: Any) -> str:
    """The one text of a value: keys sorted, no blanks, ASCII, floats at full precision.

    Raises
    ------
    RecordsError
        The value holds something that does not come back from JSON as it was: a number that is not finite, a key that
        is not text, an object; or it is nested too deeply.
    """
    check_json(value)
    return _encode(value)


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode
#: What comes back from JSON as it was.
_LEAVES = frozenset((str, int, bool, type(None)))


def check_json(value: Any, depth: int = 0) -> None:
    """Raise RecordsError where `canonical_json` does."""
    if value is None or isinstance(value, (str, bool)) or type(value) in (int, float):
        if isinstance(value, float) and not math.isfinite(value):
            raise RecordsError(f"a record cannot hold the number {value}")
    elif depth > MAX_DEPTH:
        raise RecordsError(f"a record cannot hold lists and objects inside each other deeper than {MAX_DEPTH} levels")
    elif isinstance(value, dict):
        for name in value:
            if not isinstance(name, str):
                raise RecordsError(f"a record cannot hold the key {name!r}: keys are text")
        _check_items(value.values(), depth + 1)
    elif isinstance(value, (list, tuple)):
        _check_items(value, depth + 1)
    else:
        raise RecordsError(f"a record cannot hold a value of type {type(value).__name__}: {value!r:.80}")


def _check_items(items: Iterable[Any], depth: int) -> None:
    for item in items:
        if type(item) not in _LEAVES:  # a call for each leaf takes longer than all else that storing a record does
            check_json(item, depth)


@cache
def tvm_version() -> str:
    """Version of the installed TVM, without loading it where it was installed as a package. It is read from disk, once
    for thousands of records.
    """
    try:
        return importlib.metadata.version("apache-tvm")
    except importlib.metadata.PackageNotFoundError:
        import tvm

        return str(tvm.__version__)
