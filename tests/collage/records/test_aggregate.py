"""All observations of a key make one record: sessions vote, the quiet ones; the clock and the newest decide nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

import pytest

from collage.cost.cost import Cost
from collage.records import Record, RecordDatabase, Selection
from collage.records.aggregate import aggregate, merged

Make = Callable[..., Record]
BUSY = {"load": 0.8, "steal": 0.0, "canary": 1.0}
STOLEN = {"load": 0.0, "steal": 0.3, "canary": 1.0}


def of(
    record: Make,
    session: str,
    seconds: float | None = None,
    spread: float = 0.01,
    conditions: object = None,
    **key: object,
) -> Record:
    cost = Cost.invalid(f"failed in {session}") if seconds is None else Cost(seconds, spread, 7)
    made = record("s", cost, **key)
    return replace(
        made, session=session, conditions=conditions or {}, timings=() if seconds is None else (seconds,) * 2
    )


def test_a_single_observation_is_the_record(record: Make) -> None:
    only = of(record, "a", 1.0)
    assert merged([only]) is only


def test_each_session_has_one_vote_and_the_median_wins(record: Make) -> None:
    observations = [of(record, session, seconds) for session, seconds in zip("abc", (1.0, 5.0, 1.1), strict=True)]
    for order in permutations(observations):
        found = merged(order)
        assert (found.seconds, found.samples) == (1.1, 21)
        assert found.timings == tuple(t for o in order for t in o.timings)
        assert found.label == order[-1].label and found.session == order[-1].session


def test_of_one_session_the_best_converged_observation_counts(record: Make) -> None:
    unsure, sure = of(record, "a", 2.0, spread=0.5), of(record, "a", 1.0, spread=0.01)
    other = of(record, "b", 3.0)
    assert merged([unsure, sure]) == sure and merged([sure, unsure]) == sure
    assert merged([unsure, sure, other]).seconds == 2.0, "the median of 1 and 3"


def test_observations_without_a_session_are_sessions_of_their_own(record: Make) -> None:
    assert merged([of(record, "", seconds) for seconds in (1.0, 5.0, 2.0)]).seconds == 2.0


def test_the_spread_tells_how_far_sessions_differ(record: Make) -> None:
    apart = merged([of(record, "a", 1.0, spread=0.01), of(record, "b", 2.0, spread=0.01)])
    assert apart.seconds == 1.5 and apart.spread > 0.5
    agreeing = merged([of(record, "a", 1.0, spread=0.02), of(record, "b", 1.0, spread=0.04)])
    assert agreeing.spread == pytest.approx(0.03)
    many = merged([of(record, str(i), 1.0 + 0.001 * (i % 3), spread=1e-6) for i in range(30)])
    assert 1e-6 < many.spread < 0.001, "a median of many is known better than each"


def test_what_was_ok_once_is_ok(record: Make) -> None:
    failed, ran = of(record, "a"), of(record, "b", 1.0)
    assert merged([failed, ran]) == ran == merged([ran, failed])
    again = of(record, "c")
    assert merged([failed, again]) == again and again.cost.is_invalid


@pytest.mark.parametrize("conditions", [BUSY, STOLEN, {"canary": 2.0}])
def test_disturbed_observations_count_only_where_there_is_no_other(record: Make, conditions: object) -> None:
    quiet = of(record, "a", 1.0, spread=0.3, conditions={"load": 0.02, "steal": 0.0, "canary": 1.1})
    disturbed = [of(record, session, 2.0, spread=0.001, conditions=conditions) for session in "abc"]
    assert merged([quiet, *disturbed]) == quiet == merged([*disturbed, quiet])
    assert merged(disturbed).seconds == 2.0 and merged(disturbed).samples == 21


def test_of_a_plan_the_newest_contest_counts_alone(record: Make) -> None:
    first, second, failed = (of(record, s, t, kind="plan") for s, t in (("a", 1.0), ("b", 3.0), ("c", None)))
    assert merged([first, second]) == second and merged([second, first]) == first
    assert merged([first, failed]) == failed


def test_a_clock_that_is_set_back_changes_nothing(database: RecordDatabase, record: Make) -> None:
    """The second contest was stored after the first, whatever the clock said."""
    ahead, back = "2027-01-01T00:00:00.000000+00:00", "2026-01-01T00:00:00.000000+00:00"
    plans = [replace(of(record, s, t, kind="plan"), timestamp=w) for s, t, w in (("a", 1.0, ahead), ("b", 3.0, back))]
    candidates = [replace(of(record, s, 1.0), timestamp=w) for s, w in (("a", ahead), ("b", back))]
    database.put_many([*plans, *candidates])
    assert list(database.observations()) == [*plans, *candidates], "nothing is lost"
    assert database.get(plans[0].key) == plans[1]
    assert database.get(candidates[0].key).samples == 14  # type: ignore[union-attr]


def test_the_kept_aggregates_are_those_of_the_observations(database: RecordDatabase, record: Make) -> None:
    """Stored in batches and one by one, forgotten in part: `costs` says what the observations say."""
    pick = random.Random(0)

    def one() -> Record:
        seconds = pick.choice([None, pick.uniform(1, 2), pick.uniform(1, 2)])
        made = of(record, pick.choice("abcd"), seconds, pick.uniform(0, 0.1), pick.choice([None, BUSY]))
        key = replace(made.key, structure=str(pick.randrange(12)), kind=pick.choice(["candidate", "plan"]))
        return replace(made, key=key, timestamp=f"2026-01-{pick.randrange(1, 29):02}T00:00:00.000000+00:00")

    for _ in range(4):
        database.put_many(one() for _ in range(40))
        database.put(one())
        database.forget(Selection(status=pick.choice(["ok", "invalid"]), before="2026-01-08T00:00:00.000000+00:00"))
        of_key: dict[object, list[Record]] = {}
        for observation in database.observations():
            of_key.setdefault(observation.key, []).append(observation)
        expected = {key: merged(observations) for key, observations in of_key.items()}
        assert database.get_many(expected) == expected
        assert database.costs(expected) == {key: found.cost for key, found in expected.items()}
        assert {r.key for r in database} == set(expected) and len(database) == len(expected)


def test_numbers_alone_make_the_same_aggregate(record: Make) -> None:
    observations = [of(record, session, seconds) for session, seconds in zip("abc", (1.0, 5.0, 1.1), strict=True)]
    found = aggregate("candidate", observations)
    assert (found.counted, found.seconds, found.samples) == ((0, 1, 2), 1.1, 21)
