"""One workload read from its description: its work by kind, its totals, and its kernels.

Descriptions of the candidates of one network share their parts, and a large network has thousands of candidates, so
what an operator does is computed once for each distinct operator of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from estimators.features.columns import FIRST_COLUMN, WORK, Feature, logged
from estimators.features.kernel import DETAIL_FEATURES, KernelFacts
from estimators.features.operator import ANCHORS, CLASSES, OperatorFacts, nbytes, operator_facts, tensors

#: Seconds below which nothing is dispatched; keeps the roofline of views and empty tensors above zero.
_FLOOR = 2e-7
_CALL = 1e-6
#: Products of bytes are so many times faster than those of float32, and their weights so many times smaller.
_INT8_RATE = 4.0
_ENTRY = {cls: FIRST_COLUMN[f"entry_{cls}"] for cls in CLASSES}
_EXIT = {cls: FIRST_COLUMN[f"exit_{cls}"] for cls in CLASSES}
_EPILOGUE = FIRST_COLUMN["epilogue"]
_WHOLE_CALL = FIRST_COLUMN["call"]


class Whole(NamedTuple):
    """What totals are made of: flops, bytes, seconds on the roofline, and counts.

    Attributes
    ----------
    entered, left
        Bytes of each tensor that enters and leaves.
    longest
        Operators on the longest path.
    shares
        Seconds of each operator class.
    """

    flops: float
    activation: float
    weight: float
    roofline: float
    entered: Sequence[float]
    left: Sequence[float]
    operators: int
    kernels: int
    longest: int
    crossings: int
    shares: Mapping[str, float]
    threads: int


def _share(cls: str) -> Feature[Whole]:
    formula = f"roofline time of `{cls}` operators / that of all"
    return Feature(f"share_{cls}", "fraction", formula, lambda w: w.shares[cls] / w.roofline)


TOTAL_FEATURES: tuple[Feature[Whole], ...] = (
    logged("total_flops", "flop", "sum over the operators", lambda w: w.flops),
    logged(
        "total_activation_bytes", "byte", "activations read and written, sum over the operators", lambda w: w.activation
    ),
    logged("total_weight_bytes", "byte", "constants read, sum over the operators", lambda w: w.weight),
    Feature(
        "total_roofline",
        "log2, microsecond",
        "sum of the operators' roofline times",
        lambda w: math.log2(w.roofline * 1e6),
    ),
    logged(
        "total_intensity",
        "flop/byte",
        "flops / bytes of the whole",
        lambda w: w.flops / max(1.0, w.activation + w.weight),
    ),
    logged("entering_bytes", "byte", "inputs", lambda w: sum(w.entered)),
    logged("leaving_bytes", "byte", "outputs", lambda w: sum(w.left)),
    Feature("inputs", "count", "tensors that enter", lambda w: len(w.entered)),
    Feature("outputs", "count", "tensors that leave", lambda w: len(w.left)),
    logged("operators", "count", "operators", lambda w: w.operators),
    logged("kernels", "count", "operators that are no views and no epilogues", lambda w: w.kernels),
    logged("depth", "count", "operators on the longest path", lambda w: w.longest),
    Feature("width", "count", "operators / depth: independent branches", lambda w: w.operators / w.longest),
    Feature("layout_crossings", "count", "transposes, concats, splits and other moves of data", lambda w: w.crossings),
    # Those of a task, whose structure others share, are filled in later (`estimators.features.batch`).
    Feature("composites", "count", "library patterns, or products in eight bits, inside", lambda w: 0.0),
    Feature(
        "composite_share",
        "fraction",
        "share of the operators that lie in a library pattern, or of the flops that are in eight bits",
        lambda w: 0.0,
    ),
    *map(_share, CLASSES),
    Feature("threads", "log2, count", "threads of the deployment", lambda w: math.log2(w.threads)),
)
TOTAL_NAMES = tuple(feature.name for feature in TOTAL_FEATURES)


class Reading(NamedTuple):
    """The work (`WORK`) and totals (`TOTAL_FEATURES`, composites left at 0) of a workload, its roofline time, and how
    often it has each of the reader's kernels; and the share of its flops that are in eight bits.
    """

    work: list[float]
    totals: list[float]
    roofline: float
    kernels: dict[int, int]
    int8_share: float = 0.0


class Kernel(NamedTuple):
    """What all kernels of equal details share: these, and their work as (column of `WORK`, seconds)."""

    details: tuple[float, ...]
    work: tuple[tuple[int, float], ...]


class _Operator(NamedTuple):
    """An operator's facts, where its work is counted, its work in seconds, and its roofline time."""

    facts: OperatorFacts
    cls: str
    column: int
    work: tuple[float, ...]
    seconds: float


class Reader:
    """Reads descriptions; an operator is known by the identity of its parts, so descriptions must outlive the reader.

    Parameters
    ----------
    flops, bandwidth
        Nominal rates of one thread.
    threads
        Of the deployment.
    kernels
        Takes the distinct kernels; readers may share it.
    """

    def __init__(self, flops: float, bandwidth: float, threads: int, kernels: dict[Kernel, int] | None = None) -> None:
        self.kernels = {} if kernels is None else kernels
        self.flops = flops * threads
        self.bandwidth = bandwidth * threads
        self.threads = threads
        self._operators: dict[tuple[Any, ...], _Operator] = {}
        self._tensors: dict[int, list[float]] = {}
        self._numbers: dict[tuple[Any, ...], int] = {}

    def read(self, description: Mapping[str, Any], int8: Collection[int] = ()) -> Reading:
        """What a description says, with the operators at some positions in eight bits.

        Raises KeyError, IndexError, TypeError or ValueError where it is no description.
        """
        inputs, nodes, outputs = description["inputs"], description["nodes"], description["outputs"]
        operators: list[_Operator] = []
        sources: list[list[int]] = []
        entered_at: list[list[int]] = []
        consumers: list[list[int]] = [[] for _ in nodes]
        takers: dict[int, str] = {}
        for position, node in enumerate(nodes):
            given: list[Any] = []
            constants: list[Any] = []
            made: list[int] = []
            entering: list[int] = []
            for ref in _flat(node["args"]):
                kind = ref[0]
                if kind == "node":
                    given.append(nodes[ref[1]]["out"])
                    made.append(ref[1])
                    consumers[ref[1]].append(position)
                elif kind == "in":
                    given.append(inputs[ref[1]])
                    entering.append(ref[1])
                elif kind == "const":
                    constants.append(ref[1])
            operator = self._operator(node, given, constants, position in int8)
            operators.append(operator)
            sources.append(made)
            entered_at.append(entering)
            for number in entering:
                takers.setdefault(number, operator.cls)
        leaving = {ref[1] for ref in outputs if ref[0] == "node"}
        heads = _heads(operators, sources, consumers, leaving)
        fused = [head != position for position, head in enumerate(heads)]
        work = [0.0] * len(WORK)
        work[_WHOLE_CALL] = _CALL
        for operator, follows in zip(operators, fused, strict=True):
            column = _EPILOGUE if follows else operator.column
            for term, seconds in enumerate(operator.work, column):
                work[term] += seconds
        crossing_in = [
            (_ENTRY[takers.get(i, "other")], size) for i, ty in enumerate(inputs) for size in self._sizes(ty)
        ]
        crossing_out = []
        for ref in outputs:
            ty = nodes[ref[1]]["out"] if ref[0] == "node" else inputs[ref[1]] if ref[0] == "in" else ref[1]
            column = _EXIT[operators[ref[1]].cls if ref[0] == "node" else "other"]
            crossing_out += [(column, size) for size in self._sizes(ty)]
        for column, size in (*crossing_in, *crossing_out):
            work[column] += _CALL
            work[column + 1] += size / self.bandwidth
        entered, left = [size for _, size in crossing_in], [size for _, size in crossing_out]
        kernels = self._kernels(description, operators, heads, sources, consumers, entered_at, leaving)
        reading = self._totals(operators, sources, fused, entered, left, work, kernels)
        if not int8:
            return reading
        flops = [operator.facts.flops for operator in operators]
        return reading._replace(int8_share=sum(flops[position] for position in int8) / max(1.0, sum(flops)))

    def _kernels(
        self,
        description: Mapping[str, Any],
        operators: Sequence[_Operator],
        heads: Sequence[int],
        sources: Sequence[Sequence[int]],
        consumers: Sequence[Sequence[int]],
        entered_at: Sequence[Sequence[int]],
        leaving: set[int],
    ) -> dict[int, int]:
        """How often there is each kernel."""
        members: dict[int, list[int]] = {}
        for position, head in enumerate(heads):
            members.setdefault(head, []).append(position)
        found: dict[int, int] = {}
        for head, (_, *followers) in members.items():
            if operators[head].facts.is_view:
                continue
            besides = 0.0
            for position in followers:
                others = [description["nodes"][s]["out"] for s in sources[position] if heads[s] != head]
                others += [description["inputs"][i] for i in entered_at[position]]
                besides += sum(sum(self._sizes(ty)) for ty in others)
            entering = sum(len(set(entered_at[position])) for position in members[head])
            left = sum(position in leaving for position in members[head])
            surroundings = (besides, entering, left, len(consumers[members[head][-1]]))
            key = (id(operators[head]), *(id(operators[position]) for position in followers), surroundings)
            number = self._numbers.get(key)
            if number is None:
                kernel = _kernel(operators[head], [operators[p] for p in followers], surroundings)
                number = self._numbers[key] = self.kernels.setdefault(kernel, len(self.kernels))
            found[number] = found.get(number, 0) + 1
        return found

    def _operator(
        self, node: Mapping[str, Any], given: Sequence[Any], constants: Sequence[Any], int8: bool
    ) -> _Operator:
        operands = map(id, (*given, *constants))
        key = (node["op"], id(node["attrs"]), id(node["out"]), len(given), int8, *operands)
        found = self._operators.get(key)
        if found is None:
            found = self._operators[key] = self._described(operator_facts(node, given, constants), int8)
        return found

    def _described(self, facts: OperatorFacts, int8: bool) -> _Operator:
        faster = _INT8_RATE if int8 else 1.0
        kind = "view" if facts.is_view else facts.cls
        if facts.cls == "reduction" and facts.kernel > 1:
            kind = "pool"
        traffic = (facts.input_bytes, facts.weight_bytes / faster, facts.output_bytes)
        terms = (facts.flops / self.flops / faster, *(size / self.bandwidth for size in traffic))
        return _Operator(
            facts=facts,
            cls=facts.cls,
            column=FIRST_COLUMN[kind],
            work=(_CALL,) if facts.is_view else (_CALL, *terms),
            seconds=max(terms[0], (facts.bytes - facts.weight_bytes * (1 - 1 / faster)) / self.bandwidth, _FLOOR),
        )

    def _sizes(self, ty: Any) -> list[float]:
        """Bytes of each tensor of a type."""
        if id(ty) not in self._tensors:
            self._tensors[id(ty)] = [nbytes(tensor) for tensor in tensors(ty)]
        return self._tensors[id(ty)]

    def _totals(
        self,
        operators: Sequence[_Operator],
        sources: Sequence[Sequence[int]],
        fused: Sequence[bool],
        entered: Sequence[float],
        left: Sequence[float],
        work: list[float],
        found: dict[int, int],
    ) -> Reading:
        shares = dict.fromkeys(CLASSES, 0.0)
        flops = activation = weight = 0.0
        crossings = kernels = 0
        depth = [1] * len(operators)
        for position, (operator, follows) in enumerate(zip(operators, fused, strict=True)):
            facts, cls, seconds = operator.facts, operator.cls, operator.seconds
            flops += facts.flops
            activation += facts.input_bytes + facts.output_bytes
            weight += facts.weight_bytes
            shares[cls] += seconds
            if len(operator.work) > 1:  # no view
                kernels += not follows
                crossings += cls == "layout"
            if sources[position]:
                depth[position] += max([depth[source] for source in sources[position]])
        roofline = max(_FLOOR, sum(shares.values()))
        whole = Whole(
            flops=flops,
            activation=activation,
            weight=weight,
            roofline=roofline,
            entered=entered,
            left=left,
            operators=len(operators),
            kernels=kernels,
            longest=max(depth, default=1),
            crossings=crossings,
            shares=shares,
            threads=self.threads,
        )
        return Reading(work, [feature.value(whole) for feature in TOTAL_FEATURES], roofline, found)


def _heads(
    operators: Sequence[_Operator],
    sources: Sequence[Sequence[int]],
    consumers: Sequence[Sequence[int]],
    leaving: set[int],
) -> list[int]:
    """The operator in whose kernel each is computed: an anchor for those that are elementwise in a chain that starts at
    it, each the only consumer of the one before; itself for the others.
    """
    heads = list(range(len(operators)))
    for position, operator in enumerate(operators):
        if operator.cls == "elementwise":
            for source in sources[position]:
                follows = heads[source] != source or operators[source].cls in ANCHORS
                if follows and len(consumers[source]) == 1 and source not in leaving:
                    heads[position] = heads[source]
                    break
    return heads


def _kernel(head: _Operator, followers: Sequence[_Operator], surroundings: tuple[float, int, int, int]) -> Kernel:
    work = dict(enumerate(head.work, head.column))
    for follower in followers:
        for column, seconds in enumerate(follower.work, _EPILOGUE):
            work[column] = work.get(column, 0.0) + seconds
    facts = KernelFacts(head.facts, [follower.facts for follower in followers], *surroundings)
    return Kernel(tuple(feature.value(facts) for feature in DETAIL_FEATURES), tuple(work.items()))


def _flat(refs: Sequence[Any]) -> Sequence[Any]:
    """The references inside tuples, too."""
    if all(ref[0] != "tuple" for ref in refs):
        return refs
    return [inner for ref in refs for inner in (_flat(ref[1]) if ref[0] == "tuple" else [ref])]
