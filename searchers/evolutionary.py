"""EvolutionarySearcher: the second level of the PACT'22 paper (section 4.3), over every group and every backend.

Additive costs leave out how partitions affect each other: caches, thread pools, what a compiler fuses across them. So
whole placements are run, and new ones are bred from those that run fast. Individuals are genomes
(`searchers.evolution.genome`), which decode to legal covers (`searchers.evolution.cover_finder`). Evolution starts from
the covers that it has to beat (`searchers.evolution.initial_covers`), the first of which, Dijkstra's, wins every tie.
The quickest few then run once more against the best initial cover and Dijkstra's: the least of many noisy latencies is
too small (the winner's curse).
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from collage.errors import CollageError
from collage.graph.candidates import HOST, CandidatePartition
from collage.graph.index_set import IndexSet
from collage.search import Partitioning, Searcher, SearchProblem
from searchers.cover_search.objective import Objective, make_objective
from searchers.dijkstra import DijkstraSearcher
from searchers.evolution import checkpoint
from searchers.evolution.checkpoint import Evolution, Individual
from searchers.evolution.cover_finder import Cover, CoverFinder
from searchers.evolution.fitness import Fitness
from searchers.evolution.genome import Genome, cross, encode, make_groups, mutate
from searchers.evolution.initial_covers import make_initial_covers


class EvolutionarySearcher(Searcher):
    """Finds a cover of small end-to-end latency, never worse than its initial covers beyond a tie (2% or the
    intervals).

    Without end-to-end measurement (`SearchProblem.has_latencies`) fitness is the additive cost, and where Dijkstra's
    cover is proven best by that, it is the answer at once. Equal latencies and random seeds give equal answers, as long
    as no time limit ends the search.

    Parameters
    ----------
    population
        Individuals from which parents are chosen.
    generations
        At most so many.
    crossover, mutation
        Probability that a pair of offspring exchanges genes, and that one mutates.
    gene_mutation
        Probability per gene of one that mutates.
    tournament
        Of so many individuals, chosen at random, the best becomes a parent.
    elites
        Best individuals that stay as they are.
    distinct_covers
        How many initial covers are the next best distinct ones by additive cost.
    measured_per_generation
        At most so many new placements are run per generation, cheapest by additive cost first; each takes 10 to 20
        seconds to compile and run. The initial covers are run in any case.
    patience
        Generations without improvement after which the search stops.
    finalists
        How many of the quickest covers run once more at the end, where the problem offers it
        (`SearchProblem.fresh_latencies`).
    time_limit_s
        Seconds that the search may take; the problem's own budget counts too. None for no limit. A batch that has begun
        is finished.
    checkpoint
        Path of a JSON file, written after each generation; where it exists, the search goes on from it. Used only where
        latencies are measured.
    """

    def __init__(
        self,
        population: int = 50,
        generations: int = 100,
        crossover: float = 0.5,
        mutation: float = 0.2,
        gene_mutation: float = 0.05,
        tournament: int = 5,
        elites: int = 2,
        distinct_covers: int = 3,
        measured_per_generation: int = 8,
        patience: int = 10,
        finalists: int = 3,
        time_limit_s: float | None = 600.0,
        checkpoint: str | Path | None = None,
    ) -> None:
        self.population = population
        self.generations = generations
        self.crossover = crossover
        self.mutation = mutation
        self.gene_mutation = gene_mutation
        self.tournament = tournament
        self.elites = elites
        self.distinct_covers = distinct_covers
        self.measured_per_generation = measured_per_generation
        self.patience = patience
        self.finalists = finalists
        self.time_limit_s = time_limit_s
        self.checkpoint = checkpoint

    def search(self, problem: SearchProblem) -> Partitioning:
        """
        Raises
        ------
        NoCoverError
            See `Searcher.search`.
        CollageError
            A parameter makes no sense, or the checkpoint is damaged or belongs to another search.
        """
        self._check_parameters()
        limit = self.time_limit_s if self.time_limit_s is not None else float("inf")
        deadline = time.monotonic() + limit
        found = DijkstraSearcher().search(problem)
        if not problem.has_latencies and not found.cost.is_unknown and found.gap == 0:
            note = "evolutionary search: without end-to-end measurement nothing beats Dijkstra's cover, proven cheapest"
            return replace(found, notes=(*found.notes, note))
        run = _Run(self, problem, found, deadline)
        reason = run.evolve()
        run.play_final()
        best = run.answer()
        notes = _evolution_notes(run.state, run.fitness, best, reason)
        notes += _change_notes(problem, found.candidates, run.finder.candidates(best))
        chosen = problem.partitioning(run.finder.candidates(best))
        bound = found.lower_bound if chosen.cost.is_unknown else min(found.lower_bound, chosen.cost.seconds)
        return replace(chosen, lower_bound=bound, notes=(*found.notes, *notes))

    def _check_parameters(self) -> None:
        infinite = float("inf")
        allowed = dict.fromkeys(("population", "tournament", "measured_per_generation", "patience"), (1, infinite))
        allowed["finalists"] = (1, infinite)
        allowed |= dict.fromkeys(("generations", "distinct_covers"), (0, infinite))
        allowed |= dict.fromkeys(("crossover", "mutation", "gene_mutation"), (0, 1))
        allowed["elites"] = (0, self.population - 1)
        for name, (least, most) in allowed.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise CollageError(
                    f"the evolutionary search cannot run with {name}={value}: {least} to {most} is allowed"
                )


class _Run:
    """One search: the problem laid out, and the evolution."""

    def __init__(
        self, searcher: EvolutionarySearcher, problem: SearchProblem, found: Partitioning, deadline: float
    ) -> None:
        self.searcher = searcher
        self.problem = problem
        everything = list(problem.candidates)
        objective = make_objective(problem, everything, problem.costs(everything))
        self.groups = make_groups(problem.graph, objective.candidates)
        self.finder = CoverFinder(problem, objective, self.groups)
        self._file = None
        if searcher.checkpoint is not None and problem.has_latencies:
            self._file = Path(searcher.checkpoint).expanduser()
        self._digest = _digest(searcher, problem, objective)
        resumed = None
        if self._file is not None:
            resumed = checkpoint.load(self._file, self._digest, len(objective.candidates), len(self.groups))
        if resumed is None:
            initial = make_initial_covers(
                problem, objective, self.finder, self.finder.cover_of(found.candidates), searcher.distinct_covers
            )
            self.state = Evolution(initial, random.Random(problem.seed), leader=initial[0].cover)
        else:
            self.state = resumed
        self.fitness = Fitness(problem, self.finder, self.state.initial[0].cover, self.state.latencies, deadline)
        self._resumed = resumed is not None

    def evolve(self) -> str:
        """Generation after generation; why it stopped."""
        if self._resumed:
            if self.fitness.measured:
                self.fitness.recall()
        else:
            self._begin()
        while (reason := self._reason_to_stop()) is None:
            self._generation()
            self._save()
        return reason

    def play_final(self) -> None:
        """Let the quickest covers, the best initial one and Dijkstra's run once more, unless that is the quickest."""
        state, fitness = self.state, self.fitness
        if not fitness.measured:
            return
        initial = {known.cover: None for known in state.initial}
        usable = sorted((c for c in {**initial, **state.latencies} if fitness.is_usable(c)), key=fitness.rank)
        if not usable or usable[0] == state.initial[0].cover:
            return
        best_initial = next((cover for cover in usable if cover in initial), state.initial[0].cover)
        self.problem.progress("evolution: the quickest placements run once more")
        fitness.final([*usable[: self.searcher.finalists], best_initial])

    def answer(self) -> Cover:
        """The best cover that ran; the incumbent, and after it the best initial cover, keep ties."""
        initial = [known.cover for known in self.state.initial]
        known = [*self.state.latencies, *(i.cover for i in self.state.population), self.state.leader]
        best = min(self.fitness.finalists or [*initial, *known], key=self.fitness.rank)
        if not self.fitness.is_usable(best):
            return initial[0]
        for cover in (initial[0], min(initial, key=self.fitness.rank)):
            if self.fitness.is_usable(cover) and self.fitness.ties(best, cover):
                return cover
        return best

    def _begin(self) -> None:
        state = self.state
        self.problem.progress(f"evolution: running {len(state.initial)} initial covers")
        self.fitness.run([known.cover for known in state.initial[1:]])
        if len(state.initial) == 1:
            self.fitness.run([state.initial[0].cover])
        state.population = tuple(
            Individual(encode(self.groups, self.finder.candidates(known.cover)), known.cover) for known in state.initial
        )
        state.leader = min((known.cover for known in state.initial), key=self.fitness.rank)
        self._save()

    def _reason_to_stop(self) -> str | None:
        if self.state.generation >= self.searcher.generations:
            return f"{self.state.generation} generations are done"
        if self.state.stale >= self.searcher.patience:
            return f"{self.state.stale} generations brought no improvement"
        if self.fitness.time_left <= self.fitness.final_s:
            return "its time was up"
        return None

    def _generation(self) -> None:
        state, fitness, searcher = self.state, self.fitness, self.searcher
        offspring = self._offspring()
        fresh = sorted({i.cover for i in offspring if not self._was_known(i.cover)}, key=fitness.rank)
        chosen = fresh
        if fitness.measured:
            chosen = fresh[: fitness.affordable(searcher.measured_per_generation)]
        fitness.run(chosen)
        state.memo_hits += len(offspring) - len(fresh)
        state.passed_over += len(fresh) - len(chosen)

        before = sorted(state.population, key=lambda i: fitness.rank(i.cover))
        born = [i for i in offspring if fitness.is_known(i.cover) and fitness.is_usable(i.cover)]
        next_: dict[Cover, Individual] = {}
        for individual in [*before[: searcher.elites], *sorted(born, key=lambda i: fitness.rank(i.cover)), *before]:
            if len(next_) < searcher.population:
                next_.setdefault(individual.cover, individual)
        state.population = tuple(next_.values())
        state.generation += 1
        best = min(next_, key=fitness.rank)
        improved = fitness.rank(best) < fitness.rank(state.leader) and not (
            fitness.is_usable(state.leader) and fitness.ties(best, state.leader)
        )
        state.leader, state.stale = (best, 0) if improved else (state.leader, state.stale + 1)
        self.problem.progress(
            f"evolution: generation {state.generation}, {len(state.latencies)} placements run, "
            f"{state.stale} without improvement"
        )

    def _was_known(self, cover: Cover) -> bool:
        """Whether the cover needs no look: it was run or, without hardware, is in the population."""
        if self.fitness.measured:
            return self.fitness.is_known(cover)
        return any(i.cover == cover for i in self.state.population)

    def _offspring(self) -> list[Individual]:
        """As many as may be new in the next population; in the first generation, when only initial covers are
        there, all mutate.
        """
        state, searcher = self.state, self.searcher
        wanted = searcher.population - searcher.elites
        genomes: list[Genome] = []
        while len(genomes) < wanted:
            pair = (self._parent(), self._parent())
            if state.rng.random() < searcher.crossover:
                pair = cross(*pair, state.rng)
            for genome in pair:
                if state.generation == 0 or state.rng.random() < searcher.mutation:
                    genome = mutate(genome, self.groups, searcher.gene_mutation, state.rng)
                genomes.append(genome)
        return [Individual(genome, self.finder.of_genome(genome)) for genome in genomes[:wanted]]

    def _parent(self) -> Genome:
        entrants = self.state.rng.choices(self.state.population, k=self.searcher.tournament)
        return min(entrants, key=lambda i: self.fitness.rank(i.cover)).genome

    def _save(self) -> None:
        if self._file is not None:
            checkpoint.save(self._file, self.state, self._digest)


def _digest(searcher: EvolutionarySearcher, problem: SearchProblem, objective: Objective) -> str:
    """Of all that an evolution depends on, but for how long it goes on."""
    free = ("generations", "patience", "finalists", "time_limit_s", "checkpoint")
    parts = {
        "nodes": [[node.op, *node.inputs] for node in problem.graph.nodes],
        "candidates": [
            [c.backend, list(c.sub_graph.inside), [label for label, _ in c.composites]] for c in objective.candidates
        ],
        "weights": [str(w) for w in objective.weights],
        "transitions": sorted([a, b, str(value)] for (a, b), value in objective.transitions.items()),
        "carried": sorted([a, b, *map(str, values)] for (a, b), values in objective.carried.items()),
        "parameters": {k: v for k, v in searcher.get_params().items() if k not in free},
        "seed": problem.seed,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _evolution_notes(state: Evolution, fitness: Fitness, best: Cover, reason: str) -> list[str]:
    """How long it took, how much was run, and the best initial cover against the answer."""
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
    incumbent = state.initial[0]
    best_initial = min(state.initial, key=lambda initial: fitness.rank(initial.cover))
    latency, dijkstra = fitness.latency(best), fitness.latency(incumbent.cover)
    text = f"in a final of {len(fitness.finalists)}: " if fitness.finalists else ""
    text += f"end to end {latency}; the best initial cover ({best_initial.name}) {fitness.latency(best_initial.cover)}"
    if dijkstra.is_finite and dijkstra.seconds > 0:
        text += f"; {incumbent.name} {dijkstra}, a change of {latency.seconds / dijkstra.seconds - 1:+.1%}"
    quickest = min(state.latencies, key=fitness.rank)
    if quickest != best:
        text += f"; the quickest {fitness.latency(quickest)} is a tie, which the earlier one keeps"
    return [*notes, text]


def _change_notes(
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
