"""What a final decides, from made-up samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from collage.confirm.finals import run_finals
from collage.deployed.race import Race

ENGINES = {"a by itself": "a on the file", "b by itself": "b on the file"}
PARTITIONS = {"a on the file": 1.0, "b on the file": 1.0}


def made_up(seconds: Mapping[str, float], seed: int, noise: float, rounds: int = 10) -> Race:
    """A disturbance of each contestant lasts for a few rounds."""
    rng = np.random.default_rng(seed)
    found = Race()
    for name, mean in seconds.items():
        own = np.repeat(rng.standard_normal(rounds // 2), 2) * noise
        found.samples[name] = [(mean * float(np.exp(each)),) for each in own]
    return found


def shipped(seconds: Mapping[str, float], rivals: Mapping[str, str], seed: int, noise: float = 0.1) -> str:
    finals = iter(range(100))

    def run(names: Sequence[str]) -> Race:
        return made_up({name: seconds[name] for name in names}, 1000 * seed + next(finals), noise)

    race = made_up({name: seconds[name] for name in PARTITIONS}, seed, noise)
    return run_finals(race, PARTITIONS, rivals, run)[0]


def share_of_b(seconds: Mapping[str, float], rivals: Mapping[str, str]) -> float:
    return float(np.mean([shipped(seconds, rivals, seed) == "b on the file" for seed in range(150)]))


def test_of_two_engines_in_a_tie_the_rivals_decide_too() -> None:
    """Nothing but noise tells the plans apart; their engines by themselves differ by half."""
    seconds = {"a on the file": 1.0, "b on the file": 1.0, "a by itself": 1.5, "b by itself": 1.0}
    assert share_of_b(seconds, ENGINES) > 0.9 and share_of_b(seconds, {}) < 0.6


def test_the_faster_of_two_engines_ships_more_often_where_their_rivals_count() -> None:
    seconds = {"a on the file": 1.04, "b on the file": 1.0, "a by itself": 1.04, "b by itself": 1.0}
    assert share_of_b(seconds, ENGINES) > share_of_b(seconds, {}) + 0.02


def test_of_two_engines_in_a_tie_the_winner_of_the_race_stays_and_no_other_final_is_run() -> None:
    finals = 0

    def run(names: Sequence[str]) -> Race:
        nonlocal finals
        finals += 1
        lead = {"a on the file": 1.01, "b on the file": 1.0, "a by itself": 1.01, "b by itself": 1.0}
        return made_up({name: lead[name] for name in names}, finals, 0.001)

    race = made_up({"a on the file": 1.0, "b on the file": 1.01}, 0, 0.001)
    assert run_finals(race, PARTITIONS, ENGINES, run)[0] == "a on the file"
    assert finals == 1


@pytest.mark.parametrize(("lead", "share"), [(0.92, 0.9), (1.0, 0.15), (1.08, 0.02)])
def test_a_plan_that_did_not_race_runs_where_its_rival_is_faster(lead: float, share: float) -> None:
    """Its trial fell into a bad moment; no final is long enough for its rival's lead to be beyond doubt."""
    seconds = {"a on the file": 1.0, "b on the file": lead, "a by itself": 1.0, "b by itself": lead}

    def ships_b(seed: int) -> bool:
        finals = iter(range(100))

        def run(names: Sequence[str]) -> Race:
            return made_up({name: seconds[name] for name in names}, 1000 * seed + next(finals), 0.05)

        race = made_up({"a on the file": 1.0}, seed, 0.05)
        return run_finals(race, PARTITIONS, ENGINES, run)[0] == "b on the file"

    found = float(np.mean([ships_b(seed) for seed in range(150)]))
    assert found > share if lead < 1.0 else found < share


@pytest.mark.parametrize("parts", [1.0, 3.0])
def test_rivals_say_nothing_of_plans_that_they_do_not_run(parts: float) -> None:
    """Nor of one that has won beyond doubt, whatever its engine does by itself."""
    seconds = {"mixture": 0.8, "b on the file": 1.0, "b by itself": 0.5}
    partitions = {"mixture": parts, "b on the file": 1.0}

    def run(names: Sequence[str]) -> Race:
        return made_up({name: seconds[name] for name in names}, len(names), 0.01)

    race = made_up({name: seconds[name] for name in partitions}, 1, 0.01)
    assert run_finals(race, partitions, {"b by itself": "b on the file"}, run)[0] == "mixture"
