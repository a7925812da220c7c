"""CachedEstimator: costs from records only (RFC 0062, "CostEstimator"; the cache of the paper's tuner).

It never measures and never writes. Costs that are not recorded are Unknown, or come from a fallback estimator:
`CachedEstimator(fallback=MeasuredEstimator())` measures only what was never measured before. Without a fallback it
replays recorded costs, so that searchers can be run and compared on a machine that has none of the backends' hardware.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from collage.cost.cost import Cost
from collage.cost.estimator import CostEstimator, Workload, device_kind, working_set_of
from collage.measure.faults import is_doubtful
from collage.measure.workers import Workers
from collage.progress import Reporter
from collage.records import RecordDatabase, RecordKey, keys_of
from collage.records.key import Device, MeasuringProtocol
from collage.runtime.device_info import DeviceInfo, describe_device


class CachedEstimator(CostEstimator):
    """Looks costs up by all that they depend on.

    Parameters
    ----------
    records
        A database, or the path of one; None is the default one in the user's cache folder.
    fallback
        Asked, in one batch, for the workloads that have no record; None makes them Unknown.
    protocol
        How the costs to look up were measured; None is the fallback's protocol, or else the default one.
    device
        The machine (or its fingerprint) on which they were measured; None is this one.
    """

    def __init__(
        self,
        records: RecordDatabase | str | os.PathLike[str] | None = None,
        fallback: CostEstimator | None = None,
        protocol: MeasuringProtocol | None = None,
        device: Device | None = None,
    ) -> None:
        self.records = records
        self.fallback = fallback
        self.protocol = protocol
        self.device = device

    def bind(self, records: RecordDatabase, reporter: Reporter) -> CostEstimator:
        fallback = self.fallback.bind(records, reporter) if self.fallback is not None else None
        return self.with_params(records=records if self.records is None else self.records, fallback=fallback)

    def on(self, workers: Workers) -> CostEstimator:
        fallback = None if self.fallback is None else self.fallback.on(workers)
        return self.with_params(fallback=fallback, device=self.device or workers.device)

    def session(self) -> AbstractContextManager[None]:
        return nullcontext() if self.fallback is None else self.fallback.session()

    @property
    def uses_device(self) -> bool:
        return self.fallback is not None and self.fallback.uses_device

    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        """One cost per workload: the recorded one, the fallback's, or Unknown.

        Raises
        ------
        RecordsError
            The database cannot be read.
        """
        kind = device_kind(workloads)
        device = describe_device(kind) if self.device is None else self.device
        keys = keys_of(workloads, device, self._protocol(device, kind, working_set_of(workloads)))
        with self._database() as database:
            costs: dict[RecordKey, Cost] = database.costs(keys)
        # Older versions condemned candidates for what their machine was to blame for.
        costs = {key: cost for key, cost in costs.items() if not (cost.is_invalid and is_doubtful(cost.reason))}
        missing = {key: workload for key, workload in zip(keys, workloads, strict=True) if key not in costs}
        if missing and self.fallback is not None:
            costs.update(zip(missing, self.fallback.estimate(list(missing.values())), strict=True))
        return [costs.get(key, Cost.unknown("no record")) for key in keys]

    def _protocol(self, device: Device, kind: str, working_set: int) -> MeasuringProtocol:
        if self.protocol is not None:
            return self.protocol
        if self.fallback is not None and self.fallback.protocol is not None:
            return self.fallback.protocol
        from collage.measure.protocol import candidate_protocol

        return candidate_protocol(device if isinstance(device, DeviceInfo) else describe_device(kind), working_set)

    def _database(self) -> RecordDatabase | nullcontext[RecordDatabase]:
        """The database, closed after use when it was opened here."""
        if isinstance(self.records, RecordDatabase):
            return nullcontext(self.records)
        return RecordDatabase(self.records)
