"""Calibration: what the values of a network range over, on samples.

Three methods, as in the literature (Nagel et al. 2021, "A white paper on neural network quantization", section 3.1):
all that was seen; all but the outermost hundredth of a percent; the range whose quantisation has the least mean squared
error. ONNX Runtime has calibrators on arrays, too (`onnxruntime.quantization.calibrate`); they come with the whole of
ONNX Runtime, print to the terminal, have no mean square, and their histograms grow with the ratio of the largest value
to the first sample's. Here the grids of histograms are nested, so that samples are folded one by one, in any order.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np

from collage.accuracy.digests import arrays_digest
from collage.accuracy.samples import Sample
from collage.annotations.precision import UNKNOWN, Range, ranges_of, with_ranges
from collage.cost.cost import Cost
from collage.errors import CollageError, ModelInputError
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.kinds import ValueKind
from collage.measure.reference import ReferenceRun
from collage.records import Record, RecordDatabase
from collage.records.key import calibration_key, digest_of
from collage.runtime.device_info import describe_device

Method = Literal["minmax", "percentile", "mse"]
METHODS: tuple[str, ...] = get_args(Method)
#: How ranges are seen; another version sees all of them again.
_PROTOCOL = {"name": "calibration", "version": 1, "method": "minmax"}

#: How much of what was seen "percentile" keeps, in percent.
_KEPT = 99.99
#: Bins of a histogram; the steps of eight bits; the shares of the range that "mse" tries at each end.
_BINS, _STEPS = 8192, 255
_SHARES = np.geomspace(1.0, 0.05, 60)


def calibrated(module: Any, graph: DataflowGraph, traces: Iterable[ReferenceRun], method: str = "minmax") -> Any:
    """The module with the range of every float32 value (`collage.annotations.precision.with_ranges`).

    A value that was not finite, that was always zero or that has no elements has no range: it is not quantised.

    Parameters
    ----------
    module, graph
        The canonical module and its dataflow graph.
    traces
        One run per sample, such as `(reference.on(sample) for sample in samples)`: each is folded into the ranges
        before the next one is asked for.
    method
        "minmax", "percentile" (99.99%) or "mse".

    Raises
    ------
    CollageError
        There is no such method.
    ModelInputError
        There are no traces.
    """
    if method not in METHODS:
        raise CollageError(f"no method of calibration is called {method!r}; valid names: {', '.join(METHODS)}")
    wanted = [node.index for node in graph.nodes if node.var is not None and _is_single(node)]
    seen = {index: _Seen(histogram=method != "minmax") for index in wanted}
    empty = True
    for run in traces:
        empty = False
        for index in wanted:
            seen[index].fold(*run.values([index]))
    if empty:
        raise ModelInputError("there are no samples to calibrate with")
    ranges = {graph.nodes[index].var: seen[index].range(method) for index in wanted}
    main = module["main"]
    variables = [*main.params, *(binding.var for block in main.body.blocks for binding in block.bindings)]
    return with_ranges(module, [ranges.get(variable, UNKNOWN) for variable in variables])


def calibrated_once(
    module: Any,
    graph: DataflowGraph,
    reference: ReferenceRun,
    samples: Sequence[Sample],
    network: str,
    database: RecordDatabase,
) -> Any:
    """`calibrated` by "minmax" on some samples; from the records, where the same was seen on the same before.

    Parameters
    ----------
    reference
        A run of the network on any inputs.
    network
        Its `weights_digest`.

    Raises
    ------
    RecordsError
        The records cannot be read or written.
    """
    seen = digest_of([network, [arrays_digest("", sample) for sample in samples]])
    key = calibration_key(seen, describe_device("cpu"), reference.threads, _PROTOCOL)
    known = database.get_many([key]).get(key)
    if known is not None:
        return with_ranges(module, [(low, high) for low, high in (known.description or {})["ranges"]])
    began = time.perf_counter()
    found = calibrated(module, graph, map(reference.on, samples))
    took = Cost(time.perf_counter() - began, samples=len(samples))
    told = {"ranges": [list(ends) for ends in ranges_of(found)]}
    database.put_many([Record.of(key, took, label="ranges", description=told)])
    return found


def _is_single(node: Any) -> bool:
    return node.value is ValueKind.TENSOR and str(getattr(node.var.ty, "dtype", "")) == "float32"


@dataclass
class _Seen:
    """What was seen of one value.

    Attributes
    ----------
    histogram
        Whether one is wanted.
    low, high
        The ends of what was seen.
    finite
        False once a number was not.
    exponent, bins
        Counts of equal bins between minus and plus two to the power of `exponent`. Where that has to grow, pairs of
        bins become one: the edges of the wider grid are among those of the narrower one.
    zeros
        Elements of samples that were nothing but zeros: they say nothing about a grid.
    """

    histogram: bool
    low: float = math.inf
    high: float = -math.inf
    finite: bool = True
    exponent: int = 0
    bins: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    zeros: int = 0

    def fold(self, array: np.ndarray) -> None:
        """Add the value of one sample."""
        if not array.size or not self.finite:
            return
        low, high = float(array.min()), float(array.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            self.finite = False
            return
        self.low, self.high = min(self.low, low), max(self.high, high)
        if low == high == 0:
            self.zeros += array.size
        elif self.histogram:
            self._count(array)

    def _count(self, array: np.ndarray) -> None:
        exponent = math.frexp(max(-self.low, self.high))[1]
        if not self.bins.size:
            self.bins, self.exponent = np.zeros(_BINS, np.int64), exponent
        for _ in range(min(exponent - self.exponent, _BINS)):
            half = self.bins.reshape(-1, 2).sum(axis=1)
            self.bins = np.pad(half, _BINS // 4)
        self.exponent = max(self.exponent, exponent)
        self.bins += np.histogram(np.ldexp(array, -self.exponent), _BINS, (-1.0, 1.0))[0]  # exact, and no overflow

    def range(self, method: str) -> Range:
        """The range by one of the methods."""
        if not self.finite or not self.low <= self.high or self.low == self.high == 0:
            return UNKNOWN
        if not self.bins.size:
            return self.low, self.high
        end = math.ldexp(1.0, self.exponent)
        self.bins[_BINS // 2] += self.zeros
        self.zeros = 0
        low, high = _CHOICES[method](self.bins, np.linspace(-end, end, _BINS + 1), self.low, self.high)
        return max(low, self.low), min(high, self.high)


def _percentile(bins: np.ndarray, edges: np.ndarray, low: float, high: float) -> Range:
    """What holds all but the rarest, half of them at each end."""
    below = np.cumsum(bins) / bins.sum()
    cut = (1 - _KEPT / 100) / 2
    return float(edges[np.searchsorted(below, cut)]), float(edges[np.searchsorted(below, 1 - cut) + 1])


def _least_squares(bins: np.ndarray, edges: np.ndarray, low: float, high: float) -> Range:
    """The range whose quantisation to eight bits has the least mean squared error, among shares of the whole."""
    held = np.flatnonzero(bins)
    values, counts = ((edges[:-1] + edges[1:]) / 2)[held], bins[held]

    def error(share: float) -> float:
        bottom, top = min(low * share, 0.0), max(high * share, 0.0)
        scale = (top - bottom) / _STEPS
        steps = np.rint(np.clip(values, bottom, top) / scale)
        return float(np.sum(counts * (values - steps * scale) ** 2))

    share = min(_SHARES, key=error)
    return low * float(share), high * float(share)


_CHOICES: Mapping[str, Callable[[np.ndarray, np.ndarray, float, float], Range]] = MappingProxyType(
    {"percentile": _percentile, "mse": _least_squares}
)
