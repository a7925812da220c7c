"""Features of a batch of workloads: the information on their latency that is known before they run.

They are computed from descriptions alone. `features_of` turns a batch into matrices of work
(`estimators.features.columns`), of totals (`estimators.features.workload`) and of kernels
(`estimators.features.kernel`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix  # type: ignore[import-untyped]

from collage.annotations.precision import INT8
from estimators.features.columns import KINDS, TERMS, WORK, Feature, Term
from estimators.features.kernel import DETAIL_FEATURES, DETAIL_NAMES
from estimators.features.workload import TOTAL_FEATURES, TOTAL_NAMES, Kernel, Reader, Reading

_COMPOSITES = TOTAL_NAMES.index("composites")
_SHARE = TOTAL_NAMES.index("composite_share")


@dataclass(frozen=True)
class Roofline:
    """Nominal rates of one thread of a device; only their proportions matter to a model that was fitted to latencies.

    Attributes
    ----------
    flops
        Floating-point operations per second at peak.
    bandwidth
        Bytes per second from memory.
    """

    flops: float = 40e9
    bandwidth: float = 10e9

    @classmethod
    def of(cls, device: Mapping[str, Any] | None) -> Roofline:
        """From the instruction sets in a record's `device`: two fused multiply-adds per cycle at 2.5 GHz."""
        features = set((device or {}).get("features") or ())
        lanes = 16 if "avx512f" in features else 8 if features & {"avx2", "fma", "sve"} else 4
        return cls(flops=2.5e9 * 2 * 2 * lanes)

    def seconds(self, flops: float, nbytes: float, threads: int) -> float:
        """The shortest time for so much work and traffic."""
        return max(flops / self.flops, nbytes / self.bandwidth) / threads


@dataclass(frozen=True)
class Task:
    """What features are made of, alike for workloads and for records.

    Attributes
    ----------
    structure
        Hash of the description: tasks of equal structure share their features.
    description
        See `collage.graph.description`.
    composites
        (label, positions of operators) of the library patterns inside, or of the products in eight bits.
    threads
        Of the deployment.
    """

    structure: str
    description: Mapping[str, Any]
    composites: Sequence[tuple[str, Sequence[int]]]
    threads: int

    @property
    def int8(self) -> frozenset[int]:
        """Positions of the operators that are in eight bits."""
        return frozenset(p for label, positions in self.composites if label == INT8 for p in positions)


@dataclass(frozen=True)
class FeatureTable:
    """The features of a batch of workloads.

    Attributes
    ----------
    work
        Float64 (workloads, `WORK`), in seconds at nominal rates.
    totals
        Float32 (workloads, `TOTAL_FEATURES`).
    roofline
        Float64 (workloads,): sum of the operators' roofline times, in seconds, never 0.
    kernels
        Sparse float64 (workloads, distinct kernels of the batch): how often each is there.
    kernel_details
        Float32 (distinct kernels, `DETAIL_FEATURES`).
    kernel_work
        Float64 (distinct kernels, `WORK`), in seconds at nominal rates.
    """

    work: np.ndarray
    totals: np.ndarray
    roofline: np.ndarray
    kernels: csr_matrix
    kernel_details: np.ndarray
    kernel_work: np.ndarray

    def take(self, chosen: np.ndarray) -> FeatureTable:
        """The same of some of the workloads."""
        return replace(
            self,
            work=self.work[chosen],
            totals=self.totals[chosen],
            roofline=self.roofline[chosen],
            kernels=self.kernels[chosen],
        )


def features_of(tasks: Sequence[Task], roofline: Roofline) -> FeatureTable:
    """The features of a batch; what is equal is computed once."""
    readers: dict[int, Reader] = {}
    known: dict[tuple[str, int, frozenset[int]], Reading] = {}
    distinct: dict[Kernel, int] = {}
    found: tuple[list[int], list[int], list[int]] = ([], [], [])
    totals = np.zeros((len(tasks), len(TOTAL_NAMES)), dtype=np.float32)
    work = np.zeros((len(tasks), len(WORK)))
    seconds = np.zeros(len(tasks))
    for row, task in enumerate(tasks):
        int8 = task.int8
        key = (task.structure, task.threads, int8)
        reading = known.get(key)
        if reading is None:
            if task.threads not in readers:
                readers[task.threads] = Reader(roofline.flops, roofline.bandwidth, task.threads, distinct)
            reading = known[key] = readers[task.threads].read(task.description, int8)
        work[row], totals[row], seconds[row] = reading.work, reading.totals, reading.roofline
        found[0].extend([row] * len(reading.kernels))
        found[1].extend(reading.kernels)
        found[2].extend(reading.kernels.values())
        if int8:
            totals[row, _COMPOSITES], totals[row, _SHARE] = len(int8), reading.int8_share
        elif task.composites:
            inside = sum(len(positions) for _, positions in task.composites)
            totals[row, _COMPOSITES] = len(task.composites)
            totals[row, _SHARE] = inside / max(1, len(task.description["nodes"]))
    kernel_work = np.zeros((len(distinct), len(WORK)))
    for number, kernel in enumerate(distinct):
        for column, nominal in kernel.work:
            kernel_work[number, column] = nominal
    rows, columns, counts = found
    return FeatureTable(
        work=work,
        totals=totals,
        roofline=seconds,
        kernels=csr_matrix((np.array(counts, dtype=float), (rows, columns)), shape=(len(tasks), len(distinct))),
        kernel_details=np.array([k.details for k in distinct], dtype=np.float32).reshape(-1, len(DETAIL_NAMES)),
        kernel_work=kernel_work,
    )


def as_markdown() -> str:
    """The tables of all features, as docs/FEATURES.md shows them."""
    lines = [textwrap.fill("Kinds of work: " + ", ".join(f"`{kind}`" for kind in KINDS) + ".", 100), ""]
    tables: tuple[tuple[str, Sequence[Term | Feature[Any]]], ...] = (
        ("Term of work", TERMS),
        ("Total feature", TOTAL_FEATURES),
        ("Detail of a kernel", DETAIL_FEATURES),
    )
    for title, features in tables:
        lines += [f"| {title} | unit | formula |", "|---|---|---|"]
        lines += [f"| `{f.name}` | {f.unit} | {f.formula} |" for f in features] + [""]
    return "\n".join(lines)
