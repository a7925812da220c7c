"""How long should a contestant's turn be? `python -m benchmarks.turns NETWORK [MORE ...] -o OUT.json`.

Two processes of one engine, and one of another, take turns of several lengths, in random order. Whatever the length, a
round compares two medians: the table has how much the logarithm of their ratio scatters from round to round (1.4826
median absolute deviations, and the standard deviation), and the median ratio, which should not depend on the length.
If the scatter is the same, short turns tell as much in less time.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from itertools import combinations
from pathlib import Path

import numpy as np

from benchmarks.referee.engines import engines_on
from benchmarks.referee.origin import origin

_ENTRIES = {"openvino": "openvino", "openvino again": "openvino", "onnxruntime": "onnxruntime"}
_LENGTHS = (0.005, 0.01, 0.02, 0.04, 0.08, 0.12, 0.2)

#: Length of a turn -> for each round, entry -> median seconds of its calls.
Rounds = dict[str, list[dict[str, float]]]


def rounds_of(network: str, count: int) -> Rounds:
    """So many rounds of turns of each length; half as long is spent on calls that do not count."""
    rng = random.Random(0)
    found: Rounds = {str(length): [] for length in _LENGTHS}
    with engines_on(network, _ENTRIES) as running:
        for _ in range(count):
            for length in rng.sample(_LENGTHS, len(_LENGTHS)):
                order = rng.sample(list(running), len(running))
                turns = {n: running[n].ask(time=length, warm=length / 2)["samples"] for n in order}
                found[str(length)].append({n: statistics.median(samples) for n, samples in turns.items()})
    return found


def table(rounds: Rounds) -> list[str]:
    """A line for each length and pair."""
    lines = []
    for length, turns in rounds.items():
        for one, other in combinations(_ENTRIES, 2):
            logs = np.log([turn[one] / turn[other] for turn in turns])
            middle = np.median(logs)
            mad = 1.4826 * np.median(np.abs(logs - middle))
            lines.append(
                f"{length:>5} s  {one} / {other}: {np.exp(middle):.3f}; scatter {mad:.3f}, deviation {logs.std():.3f}"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--rounds", type=int, default=60, help="of each length")
    parser.add_argument("-o", "--out", type=Path, required=True)
    options = parser.parse_args()
    found = {network: rounds_of(network, options.rounds) for network in options.networks}
    options.out.write_text(json.dumps({**origin(), "rounds": found}) + "\n")
    for network, rounds in found.items():
        print(network, *table(rounds), sep="\n")


if __name__ == "__main__":
    main()
