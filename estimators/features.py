"""Features: what is known of a workload's latency before it runs, from its description alone.

The latency of a workload is nearly the sum of what its kernels take, so the features keep the summands apart: a small
network's convolution is the same row in a large one, and a workload of any size is a sum of rows that were seen. Rows
repeat themselves by the thousand, within a network and between networks: each is computed once, and a batch of
workloads is a short table of distinct rows with a sparse matrix that says how often each workload holds each row
(`estimators.features_table` lists all features).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse  # type: ignore[import-untyped]

from estimators.features_operator import ANCHORS, CLASSES, OperatorFacts, nbytes, operator_facts, tensors
from estimators.features_table import ROW_KINDS

_CODE = {cls: code for code, cls in enumerate(CLASSES)}
_KIND = {kind: position for position, kind in enumerate(ROW_KINDS)}
#: Seconds below which nothing is dispatched; keeps the roofline of views and empty tensors above zero.
_FLOOR = 2e-7
_CALL_SECONDS = 1e-6


@dataclass(frozen=True)
class Roofline:
    """Nominal rates of one thread of a device; only their proportions matter to a model that was fitted to latencies.

    Attributes
    ----------
    flops: floating-point operations per second at peak.
    bandwidth: bytes per second from memory.
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
    structure: hash of the description: tasks of equal structure share their rows.
    description: see `collage.graph.description`.
    composites: (label, positions of operators) of the library patterns inside.
    threads: of the deployment.
    """

    structure: str
    description: Mapping[str, Any]
    composites: Sequence[tuple[str, Sequence[int]]]
    threads: int


@dataclass(frozen=True)
class FeatureTable:
    """The features of a batch of workloads.

    Attributes
    ----------
    rows: float32 (distinct rows, `ROW_FEATURES`).
    floors: float64 (distinct rows,): roofline time of each, in seconds, never 0.
    counts: sparse (workloads, distinct rows): how often a workload holds a row.
    totals: float32 (workloads, `TOTAL_FEATURES`).
    """

    rows: np.ndarray
    floors: np.ndarray
    counts: Any
    totals: np.ndarray

    def take(self, chosen: np.ndarray) -> FeatureTable:
        """The same of some of the workloads, with the rows that they hold."""
        counts = self.counts[chosen]
        used = np.flatnonzero(np.asarray(counts.sum(axis=0)).ravel())
        return FeatureTable(self.rows[used], self.floors[used], counts[:, used], self.totals[chosen])


def features_of(tasks: Sequence[Task], roofline: Roofline) -> FeatureTable:
    """The features of a batch; equal tasks are computed once."""
    return _Extraction(roofline).run(tasks)


class _Extraction:
    """One batch on its way: the caches live as long as it does, so that objects can be told by their identity."""

    def __init__(self, roofline: Roofline) -> None:
        self.roofline = roofline
        self.facts: dict[tuple[Any, ...], OperatorFacts] = {}
        self.equal: dict[OperatorFacts, OperatorFacts] = {}
        self.bases: dict[tuple[int, int], tuple[list[float], float]] = {}
        self.numbers: dict[tuple[Any, ...], int] = {}
        self.rows: list[list[float]] = []
        self.floors: list[float] = []

    def run(self, tasks: Sequence[Task]) -> FeatureTable:
        known: dict[tuple[str, int], tuple[dict[int, int], list[float]]] = {}
        indices: list[int] = []
        values: list[int] = []
        ends = [0]
        totals = []
        for task in tasks:
            key = (task.structure, task.threads)
            if key not in known:
                known[key] = _Workload(self, task).features()
            held, shared = known[key]
            indices.extend(held.keys())
            values.extend(held.values())
            ends.append(len(indices))
            totals.append(_with_composites(shared, task))
        counts = scipy.sparse.csr_matrix((values, indices, ends), shape=(len(tasks), len(self.rows)), dtype=np.float64)
        return FeatureTable(
            rows=np.array(self.rows, dtype=np.float32).reshape(len(self.rows), -1),
            floors=np.array(self.floors),
            counts=counts,
            totals=np.array(totals, dtype=np.float32).reshape(len(tasks), -1),
        )

    def base(self, facts: OperatorFacts, threads: int) -> tuple[list[float], float]:
        """The part of a row that does not depend on the neighbours, and its roofline time."""
        key = (id(facts), threads)
        if key not in self.bases:
            seconds = self.roofline.seconds(facts.flops, facts.bytes, threads)
            kind = [0.0] * len(ROW_KINDS)
            kind[_KIND[facts.cls]] = 1.0
            anchor = facts.cls in ANCHORS
            self.bases[key] = (
                [
                    *kind,
                    _log(facts.flops),
                    _log(facts.input_bytes),
                    _log(facts.weight_bytes),
                    _log(facts.output_bytes),
                    _log(facts.flops / max(1.0, facts.bytes)),
                    math.log2(max(seconds, _FLOOR) * 1e6),
                    _log(facts.rows),
                    _log(facts.columns),
                    _log(facts.products),
                    _log(facts.groups),
                    facts.kernel,
                    facts.stride,
                    facts.dilation,
                    _log(facts.channels_in),
                    _log(facts.channels_out),
                    -facts.columns % 16 / 16 if anchor else 0.0,
                    _log(facts.innermost),
                    -facts.innermost % 16 / 16,
                    0.0 if anchor else facts.flops / max(1.0, facts.elements),
                ],
                max(seconds, _FLOOR),
            )
        return self.bases[key]

    def number(self, key: tuple[Any, ...], row: list[float], floor: float) -> int:
        """The index of a distinct row."""
        self.numbers[key] = len(self.rows)
        self.rows.append(row)
        self.floors.append(floor)
        return self.numbers[key]


class _Workload:
    """The features of one structure."""

    def __init__(self, extraction: _Extraction, task: Task) -> None:
        self.extraction = extraction
        self.threads = task.threads
        self.inputs = task.description["inputs"]
        self.nodes = task.description["nodes"]
        self.outputs = task.description["outputs"]
        self.facts: list[OperatorFacts] = []
        self.sources: list[list[int]] = []
        self.entering: list[int] = []
        self.consumers: list[list[int]] = [[] for _ in self.nodes]
        self.takers: dict[int, str] = {}
        for position, node in enumerate(self.nodes):
            self._read(position, node)

    def features(self) -> tuple[dict[int, int], list[float]]:
        """How often each row occurs, and the totals."""
        held: dict[int, int] = {}
        leaving = {ref[1] for ref in self.outputs if ref[0] == "node"}
        chain, fused = self._chains(leaving)
        for position in range(len(self.nodes)):
            number = self._operator_row(position, position in leaving, chain[position], fused[position])
            held[number] = held.get(number, 0) + 1
        for i, ty in enumerate(self.inputs):
            for tensor in tensors(ty):
                number = self._border_row("entry", self.takers.get(i, "other"), tensor)
                held[number] = held.get(number, 0) + 1
        for ref in self.outputs:
            for tensor in tensors(self._type(ref)):
                cls = self.facts[ref[1]].cls if ref[0] == "node" else "other"
                number = self._border_row("exit", cls, tensor)
                held[number] = held.get(number, 0) + 1
        number = self._border_row("call", "other", ([], "float32"))
        held[number] = 1
        return held, self._totals(fused)

    def _read(self, position: int, node: Mapping[str, Any]) -> None:
        """The facts of an operator, and the edges into it."""
        inputs: list[Any] = []
        weights: list[Any] = []
        sources: list[int] = []
        entering = 0
        for ref in _flat(node["args"]):
            if ref[0] == "node":
                inputs.append(self._type(ref))
                sources.append(ref[1])
            elif ref[0] == "in":
                inputs.append(self.inputs[ref[1]])
                entering += 1
            elif ref[0] == "const":
                weights.append(ref[1])
        operands = tuple(_signature(ty) for ty in (*inputs, *weights))
        key = (node["op"], id(node["attrs"]), id(node["out"]), len(inputs), operands)
        facts = self.extraction.facts.get(key)
        if facts is None:
            found = operator_facts(node, inputs, weights)
            facts = self.extraction.facts[key] = self.extraction.equal.setdefault(found, found)
        self.facts.append(facts)
        self.sources.append(sources)
        self.entering.append(entering)
        for source in sources:
            self.consumers[source].append(position)
        for ref in _flat(node["args"]):
            if ref[0] == "in":
                self.takers.setdefault(ref[1], facts.cls)

    def _type(self, ref: Sequence[Any]) -> Any:
        if ref[0] == "node":
            return self.nodes[ref[1]]["out"]
        return self.inputs[ref[1]] if ref[0] == "in" else [[], "float32"] if ref[0] != "const" else ref[1]

    def _chains(self, leaving: set[int]) -> tuple[list[int], list[bool]]:
        """Place of each operator in its chain of elementwise operators, and whether the chain starts at an anchor."""
        place = [0] * len(self.nodes)
        fused = [False] * len(self.nodes)
        for position, facts in enumerate(self.facts):
            if facts.cls != "elementwise":
                continue
            for source in self.sources[position]:
                before = self.facts[source].cls
                if (before in ANCHORS or before == "elementwise") and len(self.consumers[source]) == 1:
                    if source in leaving:
                        continue
                    place[position] = max(place[position], place[source] + 1)
                    fused[position] |= before in ANCHORS or fused[source]
        for position in reversed(range(len(self.nodes))):
            if self.facts[position].cls in ANCHORS and len(self.consumers[position]) == 1:
                follower = self.consumers[position][0]
                while fused[follower]:
                    place[position] += 1
                    if len(self.consumers[follower]) != 1:
                        break
                    follower = self.consumers[follower][0]
        return place, fused

    def _operator_row(self, position: int, leaves: bool, chain: int, fused: bool) -> int:
        facts, sources, consumers = self.facts[position], self.sources[position], self.consumers[position]
        activations = len(sources) + self.entering[position]
        context = (
            activations,
            float(facts.constant),
            float(facts.is_view),
            _CODE[self.facts[sources[0]].cls] if sources else -1,
            _CODE[self.facts[consumers[0]].cls] if consumers else -1,
            len(consumers),
            float(leaves),
            self.entering[position] / activations if activations else 0.0,
            chain,
            float(fused),
        )
        key = (id(facts), self.threads, context)
        number = self.extraction.numbers.get(key)
        if number is None:
            base, floor = self.extraction.base(facts, self.threads)
            number = self.extraction.number(key, [*base, *context, math.log2(self.threads)], floor)
        return number

    def _border_row(self, kind: str, cls: str, tensor: tuple[Sequence[Any], str]) -> int:
        """A tensor that enters or leaves (libraries may change its layout there), or the call itself."""
        key = (kind, cls, self.threads, *tensor[0], tensor[1])
        number = self.extraction.numbers.get(key)
        if number is not None:
            return number
        size = 0.0 if kind == "call" else nbytes(tensor)
        seconds = self.extraction.roofline.seconds(0.0, size, self.threads)
        floor = _CALL_SECONDS if kind == "call" else max(seconds, _FLOOR)
        shape = tensor[0]
        kinds = [0.0] * len(ROW_KINDS)
        kinds[_KIND[kind]] = 1.0
        innermost = float(shape[-1]) if shape else 1.0
        work = [0.0, _log(size), 0.0, 0.0, 0.0, math.log2(floor * 1e6)]
        loops = [_log(size), 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0]
        neighbours = [_CODE[cls] if kind == "exit" else -1.0, _CODE[cls] if kind == "entry" else -1.0]
        row = [
            *kinds, *work, *loops, 0.0, _log(innermost), -innermost % 16 / 16, 0.0,
            1.0, 0.0, 0.0, *neighbours, 1.0, 0.0, 0.0, 0.0, 0.0, math.log2(self.threads),
        ]  # fmt: skip
        return self.extraction.number(key, row, floor)

    def _totals(self, fused: Sequence[bool]) -> list[float]:
        """All of `TOTAL_FEATURES` but the composites, which are put in for each backend."""
        shares = dict.fromkeys(CLASSES, 0.0)
        flops = activation = weight = 0.0
        crossings = kernels = 0
        depth = [1] * len(self.nodes)
        for position, facts in enumerate(self.facts):
            flops += facts.flops
            activation += facts.input_bytes + facts.output_bytes
            weight += facts.weight_bytes
            shares[facts.cls] += self.extraction.base(facts, self.threads)[1]
            crossings += facts.cls == "layout" and not facts.is_view
            kernels += not facts.is_view and not fused[position]
            depth[position] += max((depth[s] for s in self.sources[position]), default=0)
        roofline = max(_FLOOR, sum(shares.values()))
        longest = max(depth, default=1)
        count = len(self.nodes)
        entering = [nbytes(t) for ty in self.inputs for t in tensors(ty)]
        leaving = [nbytes(t) for ref in self.outputs for t in tensors(self._type(ref))]
        return [
            _log(flops),
            _log(activation),
            _log(weight),
            math.log2(roofline * 1e6),
            _log(flops / max(1.0, activation + weight)),
            _log(sum(entering)),
            _log(sum(leaving)),
            len(entering),
            len(leaving),
            _log(count),
            _log(kernels),
            _log(longest),
            count / longest,
            crossings,
            0.0,
            0.0,
            *(shares[cls] / roofline for cls in CLASSES),
        ]


_COMPOSITES = 14


def _with_composites(totals: list[float], task: Task) -> list[float]:
    inside = sum(len(positions) for _, positions in task.composites)
    result = list(totals)
    result[_COMPOSITES] = len(task.composites)
    result[_COMPOSITES + 1] = inside / max(1, len(task.description["nodes"]))
    return result


def _flat(refs: Sequence[Any]) -> list[Any]:
    result: list[Any] = []
    for ref in refs:
        if ref[0] == "tuple":
            result.extend(_flat(ref[1]))
        else:
            result.append(ref)
    return result


def _signature(ty: Any) -> tuple[Any, ...]:
    return tuple((tuple(shape), dtype) for shape, dtype in tensors(ty))


def _log(value: float) -> float:
    return math.log2(1.0 + value)
