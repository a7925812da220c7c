"""Finals: what won a race runs on fresh samples beside its challengers and the rivals, until nobody contradicts."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from collage.confirm.confirmation import choose, in_doubt, those_who_finished
from collage.deployed.race import Race
from collage.measure.sequential import HOPELESS, ratio
from collage.measure.statistics import TIE

#: Finals at most: another one follows where somebody else has won, because that is a choice again.
_FINALS = 3


def run_finals(
    race: Race,
    partitions: Mapping[str, float],
    rivals: Mapping[str, str],
    run: Callable[[Sequence[str]], Race],
) -> tuple[str, Race]:
    """Which plan ships, and the last final: its samples are of after the choice.

    Where a rival is faster beyond doubt than what the race chose, or is no slower and its engine alone is a simpler
    plan, that plan takes part in another final: the race has misjudged one of the two.

    Parameters
    ----------
    race
        Of the plans.
    partitions
        As of `choose`, of those who raced.
    rivals
        Name of each rival -> name of the plan that is its engine alone.
    run
        Runs entrants by their names for the rounds of a final.
    """
    shipped = choose(race, partitions)
    plans = _finalists(race, shipped, partitions)
    for left in reversed(range(_FINALS)):
        final = run([*plans, *rivals])
        winner = choose(final, {name: partitions[name] for name in plans})
        if left == 0:
            break
        if winner != shipped:
            shipped = winner
            plans = _finalists(race, winner, partitions)
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


def leaves_final(
    rounds: Mapping[str, Sequence[float]], partitions: Mapping[str, float], usual: int
) -> list[str] | None:
    """Who leaves a final; None when it is over.

    Its samples are reported, so that who is merely slower stays for the usual number of rounds: only who took
    `HOPELESS` times as long as another one in every round of two or more leaves. After that, those go on who are
    `in_doubt`.

    Parameters
    ----------
    rounds
        As of `in_doubt`, of plans and rivals.
    partitions
        As of `choose`, of the plans.
    usual
        Number of rounds of a final that leaves no doubt.
    """
    count = max(map(len, rounds.values()))
    if count >= usual:
        doubtful = in_doubt(rounds, partitions)
        return [name for name in rounds if name not in doubtful] if doubtful else None
    racing = {name: latencies for name, latencies in rounds.items() if len(latencies) == count}
    fastest = min(racing.values(), key=statistics.median)
    behind = {name: min(a / b for a, b in zip(took, fastest, strict=True)) for name, took in racing.items()}
    return [name for name, least in behind.items() if count > 1 and least > HOPELESS]


def _finalists(race: Race, shipped: str, partitions: Mapping[str, float]) -> list[str]:
    """What ships, the best other plan, and the simplest of those that the race has not ruled out."""
    others = [name for name in race.samples if name != shipped and race.samples[name]]
    best = sorted(others, key=lambda name: ratio(*_common(race, name, shipped)).median)[:1]
    simplest = min(those_who_finished(race, partitions), key=lambda name: partitions[name])
    return list(dict.fromkeys([shipped, *best, simplest]))


def _contradicts(final: Race, rival: str, alone: str, shipped: str, partitions: Mapping[str, float]) -> bool:
    """Whether a rival's result says that its engine alone may be the better plan."""
    if not final.samples.get(rival):
        return False
    simpler = partitions[alone] < partitions[shipped]
    return _is_faster(final, rival, shipped) or (simpler and not _is_faster(final, shipped, rival))


def _is_faster(race: Race, one: str, other: str) -> bool:
    """Whether one has won beyond doubt; so has everybody where the other one failed."""
    if not race.samples.get(other):
        return True
    found = ratio(*_common(race, one, other))
    return found.high < 1.0 and found.median < 1.0 - TIE


def _common(race: Race, one: str, other: str) -> tuple[list[float], list[float]]:
    count = min(len(race.samples[one]), len(race.samples[other]))
    return race.latencies(one)[:count], race.latencies(other)[:count]
