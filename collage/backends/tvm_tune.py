"""MetaSchedule for native kernels, on request: records that are kept, reused, and never made twice.

The folder of records holds MetaSchedule's own JSON database. Kernels are looked up by structure, as `tvm_lower` makes
them before
scheduling: what is tuned is what is built.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import tvm
from tvm.s_tir import meta_schedule as ms

_FILES = ("database_workload.json", "database_tuning_record.json")


class TuningRecords:
    """A MetaSchedule database in a folder."""

    def __init__(self, database: Any) -> None:
        self.database = database

    @classmethod
    def open(cls, folder: str | None) -> TuningRecords | None:
        """The records in a folder; None when there are none."""
        if folder is None or not all((Path(folder) / name).exists() for name in _FILES):
            return None
        return cls(ms.database.JSONDatabase(work_dir=folder))

    def scheduled(self, func: tvm.tirx.PrimFunc, target: tvm.target.Target) -> tvm.tirx.PrimFunc | None:
        """The kernel as its best record schedules it; None when it has no record."""
        module = kernel_module(func)
        if not self.database.has_workload(module):
            return None
        found = self.database.query_schedule(module, target, "main")
        return None if found is None else found.mod["main"].with_attrs(dict(func.attrs.items()))


def kernel_module(func: tvm.tirx.PrimFunc) -> Any:
    """A kernel as a tuning workload: structure only, without the name that it has in its network."""
    plain = func.without_attr("global_symbol") if func.attrs and "global_symbol" in func.attrs else func
    return tvm.IRModule({"main": plain.with_attr("global_symbol", "main").with_attr("tirx.noalias", True)})


def records_digest(folder: str | None) -> str:
    """A digest of the records in a folder, for the keys of measurements; "none" when there are none."""
    if folder is None or not all((Path(folder) / name).exists() for name in _FILES):
        return "none"
    digest = hashlib.sha256()
    for name in _FILES:
        digest.update((Path(folder) / name).read_bytes())
    return digest.hexdigest()[:16]
