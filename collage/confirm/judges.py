"""Judges: which contestants leave a race or a final after a round, and when it is over.

A plan of more partitions ships only if its lead is beyond doubt (`confirmation.choose`). If the usual number of rounds
leaves a lead neither proven nor excluded, the plans that it concerns go on.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from collage.confirm.confirmation import unbeaten
from collage.measure.sequential import HOPELESS, looks, ratio, verdicts
from collage.measure.statistics import TIE


def leaves_race(
    rounds: Mapping[str, Sequence[float]], partitions: Mapping[str, float], usual: int, longest: int
) -> Sequence[str] | None:
    """Those who have lost; None when nothing is left to be decided. After the usual number of rounds, only those go on
    who are `in_doubt`.

    Parameters
    ----------
    rounds, partitions
        As of `in_doubt`.
    usual, longest
        Number of rounds of a race that leaves no doubt; so many times as many are run at most.
    """
    found = verdicts(rounds, limit=longest * usual)
    if "go on" not in found.values():
        return None
    if max(map(len, rounds.values())) < usual:
        return [name for name, verdict in found.items() if verdict == "out"]
    return _leaves_overtime(rounds, partitions, usual, longest)


def leaves_final(
    rounds: Mapping[str, Sequence[float]], partitions: Mapping[str, float], usual: int, longest: int
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
    usual, longest
        As of `leaves_race`, of a final.
    """
    count = max(map(len, rounds.values()))
    if count >= usual:
        return _leaves_overtime(rounds, partitions, usual, longest)
    racing = {name: latencies for name, latencies in rounds.items() if len(latencies) == count}
    fastest = min(racing.values(), key=statistics.median)
    behind = {name: min(a / b for a, b in zip(took, fastest, strict=True)) for name, took in racing.items()}
    return [name for name, least in behind.items() if count > 1 and least > HOPELESS]


def _leaves_overtime(
    rounds: Mapping[str, Sequence[float]], partitions: Mapping[str, float], usual: int, longest: int
) -> list[str] | None:
    """Who leaves after the usual number of rounds or later, as those who are not in doubt do; None when nobody is.

    It is looked at the usual number of rounds, and then at geometric distances: a look after every round finds a lead
    sooner or later where there is none.
    """
    count = max(map(len, rounds.values()))
    if count > usual and count not in looks(longest * usual):
        return []
    doubtful = in_doubt(rounds, partitions)
    return [name for name in rounds if name not in doubtful] if doubtful else None


def in_doubt(rounds: Mapping[str, Sequence[float]], partitions: Mapping[str, float]) -> list[str]:
    """The simplest plan that no other one beats, and those of more partitions that seem to be faster by more than a
    tie, but not beyond doubt: more rounds of these may tell. Empty where there is no such plan.

    Parameters
    ----------
    rounds
        Name -> latencies of the rounds, in seconds. Those who have fewer rounds than others have left.
    partitions
        As of `choose`.
    """
    length = max((len(rounds[name]) for name in partitions if name in rounds), default=0)
    racing = {name: rounds[name] for name in partitions if len(rounds.get(name, ())) == length > 0}
    if not racing:
        return []
    simplest, *others = unbeaten(racing, partitions)
    faster = [name for name in others if ratio(racing[name], racing[simplest]).median < 1.0 - TIE]
    return [simplest, *faster] if faster else []
