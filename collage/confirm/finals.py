"""Finals: the winner of a race runs on fresh samples, beside its challengers and the rivals.

Fresh samples are needed because the samples of the race chose the winner. If another plan wins the final, it replaces
the winner and another final follows. Of two engines that tie, the winner of the race stays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from collage.confirm.confirmation import choose, those_who_finished, unbeaten
from collage.deployed.race import Race
from collage.measure.sequential import ratio
from collage.measure.statistics import TIE

#: Finals at most: another one follows where somebody else has won, because that is a choice again.
_FINALS = 3


def plan_of(engine: str, plans: Collection[str]) -> str:
    """The plan that runs what a rival runs: the file, or else the network on the rival's engine alone."""
    on_file = f"{engine} on the file"
    return on_file if on_file in plans else f"{engine} alone"


def run_finals(
    race: Race,
    partitions: Mapping[str, float],
    rivals: Mapping[str, str],
    run: Callable[[Sequence[str]], Race],
) -> tuple[str, Race]:
    """Which plan ships, and the last final: its samples are of after the choice.

    Of plans that are as simple and run what rivals run, if the samples cannot tell them apart, those of the rivals
    decide, too. A rival's plan takes part in another final if the rival is faster than what ships so far: by more than
    a tie where that is no simpler than the plan, and beyond doubt where it is; or if the plan is simpler and the rival
    is no slower. The race, or the trial that kept the plan out of it, has misjudged one of the two.

    Parameters
    ----------
    race
        Of the plans.
    partitions
        As of `choose`, of those who raced, and of rivals' plans that did not.
    rivals
        Name of each rival -> name of the plan that runs the same (`plan_of`).
    run
        Runs entrants by their names for the rounds of a final.
    """
    shipped = choose(race, partitions)
    plans = _finalists(race, shipped, partitions)
    for left in reversed(range(_FINALS)):
        final = run([*plans, *rivals])
        chosen = choose(final, {n: partitions[n] for n in plans})
        winner = _by_engine(final, chosen, shipped, plans, partitions, rivals)
        if left == 0:
            break
        if winner != shipped:
            plans = _finalists(race, winner, partitions) if race.samples.get(winner) else [winner, shipped]
            shipped = winner
            continue
        misjudged = [
            alone
            for rival, alone in rivals.items()
            if alone in partitions and alone not in plans and _contradicts(final, rival, alone, shipped, partitions)
        ]
        if not misjudged:
            break
        plans = [shipped, *misjudged]
    return shipped, final


def _finalists(race: Race, shipped: str, partitions: Mapping[str, float]) -> list[str]:
    """What ships, the best other plan, and the simplest of those that the race has not ruled out."""
    others = [name for name in race.samples if name != shipped and race.samples[name]]
    best = sorted(others, key=lambda name: ratio(*_common(race, name, shipped)).median)[:1]
    simplest = min(those_who_finished(race, partitions), key=lambda name: partitions[name])
    return list(dict.fromkeys([shipped, *best, simplest]))


def _by_engine(
    final: Race,
    winner: str,
    shipped: str,
    plans: Sequence[str],
    partitions: Mapping[str, float],
    rivals: Mapping[str, str],
) -> str:
    """The winner, or another plan that ties with it, if both run what rivals run: the one that took less together with
    its rival, or what ships so far if that did not take more by more than a tie. On a noisy machine two processes of an
    engine tell more of it than one.
    """
    twins = {plan: rival for rival, plan in rivals.items() if final.samples.get(rival)}
    finished = those_who_finished(final, plans)
    equal = unbeaten({name: final.latencies(name) for name in finished}, partitions)
    alike = [name for name in equal if name in twins and partitions[name] == partitions[winner]]
    if winner not in alike or winner != equal[0]:
        return winner

    def behind(name: str) -> float:
        """How many times as long as the winner it took, on average with its rival, in the median round."""
        pairs = ((name, winner), (twins[name], twins[winner]))
        own, rival = (np.log(np.divide(*_common(final, *pair))) for pair in pairs)
        count = min(len(own), len(rival))
        return float(np.exp(np.median(own[:count] + rival[:count]) / 2))

    best = min(alike, key=behind)
    return shipped if shipped in alike and behind(shipped) <= (1.0 + TIE) * behind(best) else best


def _contradicts(final: Race, rival: str, alone: str, shipped: str, partitions: Mapping[str, float]) -> bool:
    """Whether a rival's result says that its engine alone may be the better plan."""
    if not final.samples.get(rival):
        return False
    if _is_faster(final, rival, shipped):
        return True
    if partitions[alone] < partitions[shipped]:
        return not _is_faster(final, shipped, rival)
    seems = ratio(*_common(final, rival, shipped)).median
    return partitions[alone] == partitions[shipped] and seems < 1.0 - TIE


def _is_faster(race: Race, one: str, other: str) -> bool:
    """Whether one has won beyond doubt; so has everybody where the other one failed."""
    if not race.samples.get(other):
        return True
    found = ratio(*_common(race, one, other))
    return found.high < 1.0 and found.median < 1.0 - TIE


def _common(race: Race, one: str, other: str) -> tuple[list[float], list[float]]:
    count = min(len(race.samples[one]), len(race.samples[other]))
    return race.latencies(one)[:count], race.latencies(other)[:count]
