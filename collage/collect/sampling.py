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
from typing import Any

from collage.backends.base import Backend
from collage.collect.variants import propose, skeleton, vary
from collage.cost import Cost
from collage.estimate import CostEstimator, Workload
from collage.graph.from_relax import read_graph
from collage.measure.workloads import WorkloadFactory
from collage.rules.base import PartitionSpec

#: One structure on every backend that takes it.
Rivals = list[Workload]
#: Changes tried per variant before giving up: most networks have far more variants than are asked for.
_TRIES = 20
_BY_THE_WAY = frozenset(f"relax.{name}" for name in ("add", "multiply", "nn.relu", "clip", "sigmoid", "tanh"))


def draw_variants(
    sources: Sequence[Rivals], backends: Mapping[str, Backend], threads: int, count: int, rng: random.Random
) -> Iterator[Rivals]:
    """Up to `count` variants of the sources, no two of one structure, evenly over the sources' skeletons."""
    kinds: dict[str, list[Rivals]] = defaultdict(list)
    for rivals in sources:
        kinds[skeleton(rivals[0].description)].append(rivals)
    groups = list(kinds.values())
    taken = {rivals[0].structure for rivals in sources}
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


def draw_candidates(groups: Sequence[Rivals], most: int, rng: random.Random) -> list[Rivals]:
    """Some candidates of a block: the whole, then single operators, short chains and regions in turns.

    Of single operators those that do the work come first twice in three times: blocks have far more additions.
    """
    sizes: dict[int, list[Rivals]] = defaultdict(list)
    for rivals in rng.sample(list(groups), len(groups)):
        sizes[min(3, (len(rivals[0].operators) - 1).bit_length())].append(rivals)
    if rng.random() < 2 / 3:
        sizes[0].sort(key=lambda rivals: rivals[0].operators[0] not in _BY_THE_WAY)  # the last are taken first
    whole = max(groups, key=lambda rivals: len(rivals[0].operators), default=None)
    chosen = [] if whole is None else [whole]
    left = [[r for r in members if r is not whole] for _, members in sorted(sizes.items())]
    while len(chosen) < most and any(left):
        chosen += [members.pop() for members in left if members]
    return chosen[:most]


def whole_workloads(module: Any, backends: Mapping[str, Backend], threads: int) -> Rivals:
    """A module as one partition, on each backend whose rules take it whole."""
    graph = read_graph(module)
    factory = WorkloadFactory(module, graph, backends, threads)
    found = [
        candidate
        for name, backend in backends.items()
        for candidate in PartitionSpec(backend.rule(), name).candidates(graph)
        if candidate.sub_graph.inside == graph.coverable
    ]
    return list(dict.fromkeys(factory.of(candidate) for candidate in found))


def likeliest(
    pool: Sequence[Rivals],
    sources: Sequence[Rivals],
    count: int,
    learned: CostEstimator,
    cached: CostEstimator,
    rng: random.Random,
) -> list[Rivals]:
    """`count` variants of the pool, drawn more often where a cost model is unsure, or wrong about their sources.

    Weighted sampling without replacement (Efraimidis and Spirakis 2006), the likeliest first.

    Parameters
    ----------
    pool, sources: the variants, and what they are variants of.
    learned, cached: what the model says, and what was measured.
    """
    weights = _weights(pool, sources, learned, cached)
    keys = [math.log(1.0 - rng.random()) / weight for weight in weights]
    order = sorted(range(len(pool)), key=keys.__getitem__, reverse=True)
    return [pool[i] for i in order[:count]]


def by_group(estimator: CostEstimator, groups: Sequence[Rivals]) -> Iterator[list[Cost]]:
    """The costs of each group, asked for in one batch."""
    costs = iter(estimator.estimate([workload for rivals in groups for workload in rivals]) if groups else [])
    for rivals in groups:
        yield [next(costs) for _ in rivals]


def _weights(
    pool: Sequence[Rivals], sources: Sequence[Rivals], learned: CostEstimator, cached: CostEstimator
) -> list[float]:
    """How unsure the model is of a variant, plus how wrong it is, on average, on sources of the same operators."""
    flat = [workload for rivals in sources for workload in rivals]
    errors: dict[str, list[float]] = defaultdict(list)
    for workload, told, seen in zip(flat, learned.estimate(flat), cached.estimate(flat), strict=True):
        if told.is_finite and seen.is_finite and min(told.seconds, seen.seconds) > 0:
            errors[skeleton(workload.description)].append(abs(math.log(told.seconds / seen.seconds)))
    weights = []
    for rivals, costs in zip(pool, by_group(learned, pool), strict=True):
        widths = [c.spread / c.seconds if c.is_finite and c.seconds > 0 else 1.0 for c in costs]
        wrong = errors.get(skeleton(rivals[0].description), [])
        weights.append(1e-3 + sum(widths) / len(widths) + (sum(wrong) / len(wrong) if wrong else 0.0))
    return weights
