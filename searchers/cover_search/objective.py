"""Objective: what "better" means between two covers, as one integer per candidate, so that a cover's value is a sum.

From most to least significant, a cover is better when it has

1. fewer nodes inside partitions of unknown cost (a known cost is preferred to no information),
2. among those nodes, backends of lower declared priority number,
3. lower cost: candidates plus transitions, in whole picoseconds,
4. fewer partitions,
5. more of its nodes on backends of lower declared priority number.

The fields are packed into one Python integer, each wide enough that no cover overflows it. Sums of integers do not
depend on their order, so equal costs are equal (0.1 + 0.2 is 0.3 here), and the tie rules (4 and 5) decide, not
rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations

from collage.cost.cost import Cost
from collage.graph.candidates import HOST, CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.search import SearchProblem
from collage.search.crossings import Crossings
from collage.search.hand_over import hand_overs

_PER_SECOND = 10**12


@dataclass(frozen=True)
class Objective:
    """Weights of the candidates and of the transitions of one problem.

    Attributes
    ----------
    candidates
        Those of finite or unknown cost, in the problem's order made canonical.
    weights
        Per candidate, its packed value.
    relaxed
        Per candidate, its packed value with unknown costs taken as zero: what a lower bound may assume.
    transitions
        Ordered pair of backends -> packed value of one transition; only pairs for which it costs something.
    carried
        Ordered pair of backends -> per node of the graph, packed value of its bytes; only pairs for which they cost
        something.
    unknown
        Number of candidates of unknown cost.
    cost_shift, cost_bits
        Where the cost field lies in a packed value.
    crossings
        The devices, where there are several.
    copies
        Ordered pair of devices -> per node of the graph, packed value of a copy of its value.
    graph
        The graph, where devices are several.
    """

    candidates: tuple[CandidatePartition, ...]
    weights: tuple[int, ...]
    relaxed: tuple[int, ...]
    transitions: Mapping[tuple[str, str], int]
    carried: Mapping[tuple[str, str], tuple[int, ...]]
    unknown: int
    cost_shift: int
    cost_bits: int
    crossings: Crossings | None = None
    copies: Mapping[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    graph: DataflowGraph | None = None

    def seconds(self, value: int) -> float:
        """The cost of a packed value, in seconds, rounded down to a picosecond; zero for values below zero."""
        return (max(value, 0) >> self.cost_shift) / _PER_SECOND

    def finer(self, bits: int) -> Objective:
        """The same in units that are so many powers of two smaller."""
        return replace(
            self,
            weights=tuple(weight << bits for weight in self.weights),
            relaxed=tuple(weight << bits for weight in self.relaxed),
            transitions={pair: t << bits for pair, t in self.transitions.items()},
            carried={pair: tuple(t << bits for t in values) for pair, values in self.carried.items()},
            copies={pair: tuple(t << bits for t in values) for pair, values in self.copies.items()},
            cost_shift=self.cost_shift + bits,
        )

    def packed(self, seconds: float) -> int:
        """The packed value of a cost, in whole picoseconds."""
        return _picoseconds(seconds) << self.cost_shift

    def packed_price(self, price: float, exponent: int) -> int:
        """The packed value of 2**exponent units at this price in seconds per unit."""
        return max(0, math.floor(math.ldexp(price * _PER_SECOND, exponent + self.cost_shift)))

    def paid(self, chosen: Sequence[CandidatePartition]) -> int:
        """Packed value of the transitions of an acyclic cover, and of its copies between devices."""
        total = 0
        if self.crossings is not None and self.graph is not None:
            placed = self.crossings.placed(self.graph, chosen)
            total += sum(self.copies[source, target][node] for source, target, node in placed)
        for producer, consumer, passed in hand_overs(chosen):
            total += self.transitions.get((producer, consumer), 0)
            carried = self.carried.get((producer, consumer))
            total += 0 if carried is None else sum(carried[node] for node in passed)
        return total

    def unknown_nodes(self, value: int) -> bool:
        """Whether a cover of this packed value has partitions of unknown cost."""
        return value >> (self.cost_shift + self.cost_bits) > 0


def make_objective(
    problem: SearchProblem, candidates: Sequence[CandidatePartition], costs: Sequence[Cost]
) -> Objective:
    """Pack the costs of the candidates that may be in a result; Invalid ones are left out."""
    ranks = {p: i for i, p in enumerate(sorted({problem.priority(c.backend) for c in candidates if c.backend != HOST}))}
    usable = sorted(
        ((c, cost) for c, cost in zip(candidates, costs, strict=True) if not cost.is_invalid),
        key=lambda pair: _canonical(problem, pair[0]),
    )
    latencies = {pair: _picoseconds(t.latency) for pair, t in problem.transitions.items()}
    transitions = {pair: latency for pair, latency in latencies.items() if latency and HOST not in pair}
    carried = {
        pair: tuple(_picoseconds(t.seconds_per_byte * node.size) for node in problem.graph.nodes)
        for pair, t in problem.transitions.items()
        if t.seconds_per_byte and HOST not in pair
    }
    carried = {pair: values for pair, values in carried.items() if any(values)}

    copies = _copies(problem)

    nodes = len(problem.nodes) + 1
    rank_bits = (nodes * (len(ranks) + 1)).bit_length()
    count_bits = nodes.bit_length()
    highest = max((_picoseconds(cost.seconds) for _, cost in usable if cost.is_finite), default=0)
    highest_transition = max(transitions.values(), default=0) + max(map(max, carried.values()), default=0)
    highest_copies = sum(map(sum, copies.values()))
    cost_bits = (nodes * highest + nodes * nodes * highest_transition + highest_copies + 1).bit_length()
    cost_shift = count_bits + rank_bits
    unknown_shift = cost_shift + cost_bits

    weights, relaxed = [], []
    for candidate, cost in usable:
        if candidate.backend == HOST:
            ties = 0
            ranked = 0
        else:
            ranked = len(candidate.sub_graph.inside) * ranks[problem.priority(candidate.backend)]
            ties = (1 << rank_bits) + ranked
        known = (0 if cost.is_unknown else _picoseconds(cost.seconds) << cost_shift) + ties
        hidden = (len(candidate.sub_graph.inside) << rank_bits) + ranked if cost.is_unknown else 0
        weights.append((hidden << unknown_shift) + known)
        relaxed.append(known)
    return Objective(
        candidates=tuple(c for c, _ in usable),
        weights=tuple(weights),
        relaxed=tuple(relaxed),
        transitions={pair: t << cost_shift for pair, t in transitions.items()},
        carried={pair: tuple(t << cost_shift for t in values) for pair, values in carried.items()},
        unknown=sum(cost.is_unknown for _, cost in usable),
        cost_shift=cost_shift,
        cost_bits=cost_bits,
        crossings=problem.crossings,
        copies={pair: tuple(t << cost_shift for t in values) for pair, values in copies.items()},
        graph=problem.graph,
    )


def _copies(problem: SearchProblem) -> dict[tuple[str, str], tuple[int, ...]]:
    """Ordered pair of devices -> per node, picoseconds of a copy of its value."""
    crossings = problem.crossings
    if crossings is None:
        return {}
    devices = sorted({crossings.home, *crossings.devices.values()})
    return {
        (a, b): tuple(_picoseconds(crossings.copy_seconds(problem.graph, (a, b, n.index))) for n in problem.graph.nodes)
        for a, b in permutations(devices, 2)
    }


def _canonical(problem: SearchProblem, candidate: CandidatePartition) -> tuple[object, ...]:
    """An order that does not depend on the order in which the rules found the candidates."""
    inside = candidate.sub_graph.inside
    labels = tuple((label, nodes.sort_key) for label, nodes in candidate.composites)
    return (inside.first, len(inside), inside.sort_key, problem.priority(candidate.backend), candidate.backend, labels)


def _picoseconds(seconds: float) -> int:
    if not math.isfinite(seconds):
        raise ValueError(f"a cost to be summed must be finite: {seconds}")
    return round(seconds * _PER_SECOND)
