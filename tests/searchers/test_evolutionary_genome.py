"""Genomes: groups, what a genome decodes to, and how it varies."""

from __future__ import annotations

import itertools
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from collage.cost.cost import Cost
from collage.graph.candidates import HOST, CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.kinds import OpKind
from collage.search import SearchProblem
from searchers.cover_search.objective import make_objective
from searchers.evolution.cover_finder import CoverFinder
from searchers.evolution.genome import ANY, Gene, Genome, Group, Link, cross, encode, make_groups, mutate
from tests.searchers.problems import candidate, covers, graph_of, problem_of, value
from tests.searchers.test_dijkstra_brute_force import problems


def finder_of(problem: SearchProblem) -> tuple[CoverFinder, tuple[Group, ...]]:
    everything = list(problem.candidates)
    objective = make_objective(problem, everything, problem.costs(everything))
    groups = make_groups(problem.graph, objective.candidates)
    return CoverFinder(problem, objective, groups), groups


def runs(size: int, backends: str = "xy") -> SearchProblem:
    """A chain of which every interval is a candidate of every backend, at one second per partition and node."""
    graph = graph_of([[], *([i] for i in range(size - 1))])
    intervals = [range(a, b) for a in range(size) for b in range(a + 1, size + 1)]
    return problem_of(graph, {candidate(graph, b, nodes): 1.0 + len(nodes) for b in backends for nodes in intervals})


def decode(problem: SearchProblem, genome: Genome) -> list[CandidatePartition]:
    finder, _ = finder_of(problem)
    return finder.candidates(finder.of_genome(genome))


def as_text(cover: list[CandidatePartition]) -> list[str]:
    return sorted((str(c) for c in cover), key=lambda text: text[1:])


def test_a_group_is_an_anchor_with_the_light_operators_that_follow() -> None:
    graph = DataflowGraph.from_edges(
        [
            ("conv", OpKind.ANCHOR, []),
            ("add", OpKind.BROADCAST, [0]),
            ("relu", OpKind.ELEMENTWISE, [1]),
            ("conv", OpKind.ANCHOR, [2]),
            ("add", OpKind.BROADCAST, [2, 3]),
            ("softmax", OpKind.REDUCTION, [4]),
        ]
    )
    found = [candidate(graph, "y", range(6)), candidate(graph, "x", [0]), candidate(graph, HOST, [1])]
    groups = make_groups(graph, found)
    assert [bin(group.nodes) for group in groups] == ["0b111", "0b11000", "0b100000"]
    assert [group.backends for group in groups] == [("x", "y"), ("y",), ("y",)]
    assert [group.source for group in groups] == [None, (2, 3), (4, 5)]


def test_without_heavy_operators_every_call_is_a_group() -> None:
    problem = runs(3)
    assert [group.nodes for group in make_groups(problem.graph, problem.candidates)] == [1, 2, 4]


def test_genes_decide_backends_and_links_decide_how_large_partitions_are() -> None:
    cut, joined = Link.CUT, Link.JOINED
    x, y = "x", "y"
    wishes = (Gene(x, Link.ANY), Gene(x, cut), Gene(y, cut), Gene(y, joined))
    assert as_text(decode(runs(4), wishes)) == ["x{0}", "x{1}", "y{2,3}"]
    free = tuple(Gene(ANY, Link.ANY) for _ in range(4))
    assert as_text(decode(runs(4), free)) == ["x{0..3}"], "nothing wished: the cheapest cover"


def test_a_backend_is_worth_more_than_a_link() -> None:
    assert as_text(decode(runs(2), (Gene("x", Link.ANY), Gene("y", Link.JOINED)))) == ["x{0}", "y{1}"]


def test_a_wish_that_nobody_can_meet_is_passed_over() -> None:
    graph = graph_of([[], [0]])
    costs: dict[CandidatePartition, Cost | float] = {
        candidate(graph, "x", [0]): 1.0,
        candidate(graph, "x", [1]): 1.0,
        candidate(graph, "y", [1]): Cost.invalid("refused"),
    }
    assert as_text(decode(problem_of(graph, costs), (Gene("y", Link.ANY), Gene("y", Link.JOINED)))) == ["x{0}", "x{1}"]


@settings(max_examples=60, deadline=None)
@given(problems(transitions=True, singles=True), st.integers(0, 99))
def test_every_genome_is_a_legal_cover_that_is_valued_as_dijkstra_values_it(problem: SearchProblem, seed: int) -> None:
    finder, groups = finder_of(problem)
    rng = random.Random(seed)
    genome = mutate(tuple(Gene(ANY, Link.ANY) for _ in groups), groups, 0.8, rng)
    cover = finder.of_genome(genome)
    chosen = finder.candidates(cover)
    assert problem.partitioning(chosen).cost.is_finite
    mine = value(problem, chosen)
    every = itertools.islice(covers(problem), 40)
    packed = [(value(problem, other), finder.value(finder.cover_of(other))) for other in every]
    assert all((theirs < mine) == (number < finder.value(cover)) for theirs, number in packed)


@settings(max_examples=60, deadline=None)
@given(problems(singles=True), st.data())
def test_a_cover_decodes_from_its_own_genome_as_far_as_genes_can_tell(problem: SearchProblem, data: Any) -> None:
    """One node per group: all that a genome says of a cover is met again, and no dearer."""
    every = list(itertools.islice(covers(problem), 30))
    cover = data.draw(st.sampled_from(every))
    finder, groups = finder_of(problem)
    genome = encode(groups, cover)
    again = finder.of_genome(genome)
    if len(groups) == len(problem.nodes):
        theirs = encode(groups, finder.candidates(again))
        wishes = [(wish.backend, met.backend) for wish, met in zip(genome, theirs, strict=True) if wish.backend != ANY]
        assert all(met in (wish, ANY) for wish, met in wishes), "the host, which costs nothing, meets every wish"
        assert [gene.link for gene in theirs] == [gene.link for gene in genome]
        assert finder.value(again) <= finder.value(finder.cover_of(cover))


@given(st.integers(1, 12), st.integers(0, 999))
def test_two_point_crossover_exchanges_one_stretch(size: int, seed: int) -> None:
    first = tuple(Gene("x", Link.ANY) for _ in range(size))
    second = tuple(Gene("y", Link.ANY) for _ in range(size))
    a, b = cross(first, second, random.Random(seed))
    text = "".join(gene.backend for gene in a)
    assert [g.backend for g in b] == [{"x": "y", "y": "x"}[c] for c in text]
    assert sum(before != after for before, after in zip("x" + text, text + "x", strict=True)) <= 2


def test_mutation_changes_the_share_that_is_asked_for_to_something_else_that_is_possible() -> None:
    groups = tuple(Group(1 << i, ("x", "y"), (i - 1, i) if i else None) for i in range(400))
    genome = tuple(Gene("x", Link.CUT) for _ in groups)
    assert mutate(genome, groups, 0.0, random.Random(0)) == genome
    changed = mutate(genome, groups, 0.05, random.Random(0))
    different = [gene for gene in changed if gene != ("x", Link.CUT)]
    assert 5 <= len(different) <= 40
    assert {gene.backend for gene in different} <= {"x", "y", ANY}
    assert all(a != b for a, b in zip(mutate(genome, groups, 1.0, random.Random(0)), genome, strict=True))
