"""What a collection measures: drawn variants of the candidates of networks, and drawn candidates of blocks.

See `collage.collect.collection`. Variants are drawn evenly over kinds of sub-graphs rather than over sub-graphs, so
that the fifty blocks of one network do not crowd out the one head of another; where there is a cost model already, more
often where it is unsure, or wrong.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from collage.annotations.precision import INT8
from collage.backends.base import Backend
from collage.collect.variants import propose, skeleton, vary
from collage.cost.cost import Cost
from collage.cost.estimator import CostEstimator, Workload, estimates
from collage.graph.candidates import CandidatePartition
from collage.graph.from_relax import read_graph
from collage.graph.index_set import IndexSet
from collage.measure.workloads import WorkloadFactory
from collage.rules.base import PartitionSpec

#: One structure on every backend that takes it: candidates that are measured together.
Alternatives = list[Workload]
#: Changes tried per variant before giving up: most networks have far more variants than are asked for.
_TRIES = 20
_BY_THE_WAY = frozenset(f"relax.{name}" for name in ("add", "multiply", "nn.relu", "clip", "sigmoid", "tanh"))


def draw_variants(
    sources: Sequence[Alternatives], backends: Mapping[str, Backend], threads: int, count: int, rng: random.Random
) -> Iterator[Alternatives]:
    """Up to `count` variants of the sources, no two of one structure, evenly over the sources' skeletons."""
    kinds: dict[str, list[Alternatives]] = defaultdict(list)
    for alternatives in sources:
        kinds[skeleton(alternatives[0].description)].append(alternatives)
    groups = list(kinds.values())
    taken = {alternatives[0].structure for alternatives in sources}
    drawn = 0
    for _ in range(count * _TRIES if groups else 0):
        if drawn == count:
            return
        source = rng.choice(rng.choice(groups))[0]
        module = vary(source.module, propose(source.module, rng))
        found = whole_workloads(module, backends, threads) if module is not None else []
        if found and found[0].structure not in taken:
            taken.add(found[0].structure)
            drawn += 1
            yield found


def draw_candidates(groups: Sequence[Alternatives], most: int, rng: random.Random) -> list[Alternatives]:
    """Some candidates of a block: the whole, then single operators, short chains and regions interleaved.

    Of single operators those that do the work come first twice in three times: blocks have far more additions.
    """
    sizes: dict[int, list[Alternatives]] = defaultdict(list)
    for alternatives in rng.sample(list(groups), len(groups)):
        sizes[min(3, (len(alternatives[0].operators) - 1).bit_length())].append(alternatives)
    if rng.random() < 2 / 3:
        sizes[0].sort(key=lambda one: one[0].operators[0] not in _BY_THE_WAY)  # the last are taken first
    whole = max(groups, key=lambda one: len(one[0].operators), default=None)
    chosen = [] if whole is None else [whole]
    left = [[r for r in members if r is not whole] for _, members in sorted(sizes.items())]
    while len(chosen) < most and any(left):
        chosen += [members.pop() for members in left if members]
    return chosen[:most]


def in_int8(candidate: CandidatePartition, backend: Backend) -> Iterator[CandidatePartition]:
    """A candidate with all its products in eight bits; of several also with some of them."""
    graph = candidate.sub_graph.graph
    products = backend.int8_nodes(graph, candidate.sub_graph.inside)
    if products:
        yield replace(candidate, composites=((INT8, products),))
    if len(products) > 1:
        rng = random.Random(str(candidate))
        some = rng.sample(list(products), rng.randrange(1, len(products)))
        yield replace(candidate, composites=((INT8, IndexSet(some)),))


def whole_workloads(module: Any, backends: Mapping[str, Backend], threads: int) -> Alternatives:
    """A module as one partition, on each backend whose rules take it whole."""
    graph = read_graph(module)
    factory = WorkloadFactory(module, graph, backends, threads)
    found = [
        candidate
        for name, backend in backends.items()
        for candidate in PartitionSpec(backend.partition_rule, name).candidates(graph)
        if candidate.sub_graph.inside == graph.coverable
    ]
    return list(dict.fromkeys(factory.of(candidate) for candidate in found))


def likeliest(
    pool: Sequence[Alternatives],
    sources: Sequence[Alternatives],
    count: int,
    learned: CostEstimator,
    cached: CostEstimator,
    rng: random.Random,
) -> list[Alternatives]:
    """`count` variants of the pool, drawn more often where a cost model is unsure, or wrong about their sources.

    Weighted sampling without replacement (Efraimidis and Spirakis 2006), the likeliest first.

    Parameters
    ----------
    pool, sources
        The variants, and what they are variants of.
    learned, cached
        What the model says, and what was measured.
    """
    weights = _weights(pool, sources, learned, cached)
    keys = [math.log(1.0 - rng.random()) / weight for weight in weights]
    order = sorted(range(len(pool)), key=keys.__getitem__, reverse=True)
    return [pool[i] for i in order[:count]]


def by_group(estimator: CostEstimator, groups: Sequence[Alternatives]) -> Iterator[list[Cost]]:
    """The costs of each group, asked for in one batch for each device."""
    costs = estimates(estimator, (w for alternatives in groups for w in alternatives)) if groups else {}
    for alternatives in groups:
        yield [costs[w] for w in alternatives]


def _weights(
    pool: Sequence[Alternatives], sources: Sequence[Alternatives], learned: CostEstimator, cached: CostEstimator
) -> list[float]:
    """How unsure the model is of a variant, plus how wrong it is, on average, on sources of the same operators."""
    flat = [workload for alternatives in sources for workload in alternatives]
    errors: dict[str, list[float]] = defaultdict(list)
    predictions, measurements = estimates(learned, flat), estimates(cached, flat)
    for workload in flat:
        predicted, measured = predictions[workload], measurements[workload]
        if predicted.is_finite and measured.is_finite and min(predicted.seconds, measured.seconds) > 0:
            errors[skeleton(workload.description)].append(abs(math.log(predicted.seconds / measured.seconds)))
    weights = []
    for alternatives, costs in zip(pool, by_group(learned, pool), strict=True):
        widths = [c.spread / c.seconds if c.is_finite and c.seconds > 0 else 1.0 for c in costs]
        wrong = errors.get(skeleton(alternatives[0].description), [])
        weights.append(1e-3 + sum(widths) / len(widths) + (sum(wrong) / len(wrong) if wrong else 0.0))
    return weights
