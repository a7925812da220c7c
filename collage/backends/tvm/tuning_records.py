"""Tuning records of native kernels: MetaSchedule's JSON database in a folder, and what it was worth.

`kernels.jsonl` has one line for each kernel that was tuned: how fast its best record is, and how fast the schedule
rules' kernel is, measured interleaved. A record is used where it wins. Kernels are known by their structure before
scheduling, not by name, so that equal kernels of different networks share their records.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm.s_tir import meta_schedule as ms

from collage.errors import RecordsError

_DATABASE = ("database_workload.json", "database_tuning_record.json")
_KERNELS = "kernels.jsonl"
#: A record has to beat the rules' kernel by this factor: a smaller difference is noise.
_MARGIN = 0.98


@dataclass(frozen=True)
class TunedKernel:
    """What tuning one kernel found.

    Attributes
    ----------
    kernel
        Structural hash of the kernel before scheduling.
    trials
        Schedules that were tried for it.
    threads
        That it was measured with.
    rules, tuned
        Latencies in seconds, by the schedule rules and by the best record; `tuned` is None when no trial ran.
    """

    kernel: str
    trials: int
    threads: int
    rules: float
    tuned: float | None

    @property
    def wins(self) -> bool:
        """Whether the record is used."""
        return self.tuned is not None and self.tuned < _MARGIN * self.rules


class TuningRecords:
    """The records in a folder.

    Parameters
    ----------
    folder
        Holds MetaSchedule's database and `kernels.jsonl`; made when the first kernel is tuned.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.kernels: Mapping[str, TunedKernel] = _read_kernels(self.folder / _KERNELS)
        self._database: Any = None

    @classmethod
    def open(cls, folder: str | None) -> TuningRecords | None:
        """The records in a folder; None when there are none.

        Raises
        ------
        RecordsError
            The folder holds something that is no list of tuned kernels.
        """
        if folder is None or not (Path(folder) / _KERNELS).is_file():
            return None
        return cls(folder)

    @property
    def database(self) -> Any:
        """MetaSchedule's database, read on first use."""
        if self._database is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._database = ms.database.JSONDatabase(work_dir=str(self.folder))
        return self._database

    def scheduled(self, func: tvm.tirx.PrimFunc, target: tvm.target.Target) -> tvm.tirx.PrimFunc | None:
        """The kernel as its record schedules it; None when it has none, or the rules are faster."""
        module = kernel_module(func)
        entry = self.kernels.get(kernel_hash(module))
        if entry is None or not entry.wins:
            return None
        found = self.database.query_schedule(module, target, "main")
        return None if found is None else found.mod["main"].with_attrs(dict(func.attrs.items()))

    def add(self, entry: TunedKernel) -> None:
        """Append one kernel's result; it is on disk when this returns.

        Raises
        ------
        RecordsError
            The folder cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with (self.folder / _KERNELS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(entry), sort_keys=True) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RecordsError(f"{self.folder}: cannot write tuning records: {error.strerror}") from error
        self.kernels = {**self.kernels, entry.kernel: entry}


def kernel_module(func: tvm.tirx.PrimFunc) -> Any:
    """A kernel as a tuning workload: structure only, without the name that it has in its network."""
    plain = tvm.tirx.PrimFunc(func.params, func.body, func.ret_type)
    return tvm.IRModule({"main": plain.with_attr("global_symbol", "main").with_attr("tirx.noalias", True)})


def kernel_hash(module: Any) -> str:
    """A name for a kernel's structure, the same in every process."""
    return f"{tvm_ffi.structural_hash(module, map_free_vars=True) & (2**64 - 1):016x}"


def records_digest(folder: str | None) -> str:
    """A digest of what the records in a folder decide, for the keys of measurements; "none" when there are no records.

    Kernels for which the rules win change nothing that is built, and do not count.
    """
    records = TuningRecords.open(folder)
    winners = sorted(name for name, entry in records.kernels.items() if entry.wins) if records is not None else []
    if records is None or not winners:
        return "none"
    digest = hashlib.sha256()
    for name in winners:
        digest.update(json.dumps(asdict(records.kernels[name]), sort_keys=True).encode())
    return digest.hexdigest()[:16]


def _read_kernels(path: Path) -> dict[str, TunedKernel]:
    """The last entry of each kernel; a line torn by a crash, which can only be the last, is dropped."""
    if not path.is_file():
        return {}
    kernels: dict[str, TunedKernel] = {}
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = TunedKernel(**json.loads(line))
        except (ValueError, TypeError) as error:
            if number == len(lines):
                break
            raise RecordsError(f"{path}: line {number} is no tuned kernel: {error}") from error
        kernels[entry.kernel] = entry
    return kernels
