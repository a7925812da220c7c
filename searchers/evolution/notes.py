"""Notes on an evolution: what was tried, what came of it, and what the answer does otherwise than Dijkstra's cover."""

from __future__ import annotations

from collections.abc import Sequence

from collage.graph.candidates import HOST, CandidatePartition
from collage.graph.index_set import IndexSet
from collage.search import SearchProblem
from searchers.evolution.checkpoint import Evolution
from searchers.evolution.cover_finder import Cover
from searchers.evolution.fitness import Fitness


def describe_evolution(state: Evolution, fitness: Fitness, best: Cover, reason: str) -> list[str]:
    """How long it took, how much was run, and the best seed against the answer."""
    if not fitness.measured:
        return [
            f"evolutionary search: {state.generation} generations, by additive cost, as the problem has no end-to-end "
            f"measurement; {state.memo_hits} memo hits; it stopped because {reason}"
        ]
    failed = [cost for cost in state.latencies.values() if not cost.is_finite]
    notes = [
        f"evolutionary search: {state.generation} generations, {len(state.latencies)} placements measured, "
        f"{state.memo_hits} memo hits, {state.passed_over} offspring not measured (dearer by additive cost); "
        f"it stopped because {reason}"
    ]
    if failed:
        first = failed[0].reason or "no reason given"
        notes.append(f"{len(failed)} of the placements failed; the first: {first}")
    if not fitness.is_usable(best):
        return [*notes, "not one placement ran: the answer is Dijkstra's, by additive cost"]
    incumbent = state.seeds[0]
    seed = min(state.seeds, key=lambda s: fitness.rank(s.cover))
    latency, dijkstra = fitness.latency(best), fitness.latency(incumbent.cover)
    text = f"in a final of {len(fitness.finalists)}: " if fitness.finalists else ""
    text += f"end to end {latency}; the best seed ({seed.name}) {fitness.latency(seed.cover)}"
    if dijkstra.is_finite and dijkstra.seconds > 0:
        text += f"; {incumbent.name} {dijkstra}, a change of {latency.seconds / dijkstra.seconds - 1:+.1%}"
    quickest = min(state.latencies, key=fitness.rank)
    if quickest != best:
        text += f"; the quickest {fitness.latency(quickest)} is a tie, which an earlier one keeps"
    return [*notes, text]


def describe_changes(
    problem: SearchProblem, before: Sequence[CandidatePartition], after: Sequence[CandidatePartition]
) -> list[str]:
    """Which nodes moved from which backend to which."""
    if set(before) == set(after):
        return ["the answer is Dijkstra's cover"]
    old, new = _backends(before), _backends(after)
    moved: dict[tuple[str, str], list[int]] = {}
    for node in sorted(old):
        if old[node] != new[node]:
            moved.setdefault((old[node], new[node]), []).append(node)
    counts = f"{_partitions(after)} partitions, Dijkstra's has {_partitions(before)}"
    if not moved:
        return [f"against Dijkstra's cover no node changed its backend; {counts}"]
    texts = []
    for (source, target), nodes in sorted(moved.items()):
        ops = dict.fromkeys(problem.graph.nodes[i].op.rpartition(".")[2] for i in nodes)
        names = ", ".join(list(ops)[:4]) + (", ..." if len(ops) > 4 else "")
        texts.append(f"{len(nodes)} nodes from {source} to {target}: {IndexSet(nodes)!r} ({names})")
    return [f"moved against Dijkstra's cover: {'; '.join(texts)}; {counts}"]


def _backends(cover: Sequence[CandidatePartition]) -> dict[int, str]:
    return {node: candidate.backend for candidate in cover for node in candidate.sub_graph.inside}


def _partitions(cover: Sequence[CandidatePartition]) -> int:
    return sum(candidate.backend != HOST for candidate in cover)
