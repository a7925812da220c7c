"""A question goes to one worker at a time, and is answered once, whatever happens to workers."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from collage.measure.fleet import dispatch as module
from collage.measure.fleet.dispatch import LOST, Abandoned, Crowd, Lost, Member, Pending, dispatch
from collage.measure.fleet.drift import Drift, has_drifted


@dataclass
class Asked(Pending[int]):
    """A question at a worker of the tests."""

    member: Member
    question: int
    done: Callable[[], None]
    answer: int | Lost = Lost.WORKER
    cancelled: bool = False

    def result(self) -> int | Lost:
        return self.answer

    def cancel(self) -> None:
        self.cancelled = True

    def finish(self, answer: int | Lost) -> None:
        self.answer = answer
        self.done()


@dataclass
class Workers(Crowd[int, int]):
    """Answers at once with the square, unless `fate` says otherwise: it is lost, or "silent" and says nothing."""

    present: dict[str, Member]
    fate: Callable[[Asked], object] = lambda asked: asked.question**2
    refused: Callable[[Member, int], bool] = lambda member, answer: False
    asked: list[Asked] = field(default_factory=list)

    def members(self) -> Mapping[str, Member]:
        return dict(self.present)

    def ask(self, member: Member, question: int, done: Callable[[], None]) -> Pending[int]:
        self.asked.append(asked := Asked(member, question, done))
        fate = self.fate(asked)
        if fate != "silent":
            asked.finish(fate if isinstance(fate, int | Lost) else Lost.WORKER)
        return asked

    def refuse(self, member: Member, answer: int, refused: int) -> bool:
        return self.refused(member, answer)


def named(*names: str, place: str = "", slots: int = 1) -> dict[str, Member]:
    return {name: Member(name, place or name, slots) for name in names}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.001)


def test_everything_is_answered_once() -> None:
    crowd = Workers(named("a", "b", "c"))
    found = list(dispatch(crowd, range(20), 1.0))
    assert sorted(found) == [(i, i * i, 0) for i in range(20)]
    assert len(Counter(asked.member.address for asked in crowd.asked)) == 3


def test_of_a_place_one_is_asked_at_a_time_and_others_as_often_as_they_have_slots() -> None:
    for members, most in ((named("a", "b", place="host"), 1), (named("a", "b", slots=2), 4)):
        crowd = Workers(members, fate=lambda asked: "silent")
        running = dispatch(crowd, range(9), 1.0)
        thread = threading.Thread(target=lambda running=running: next(running))
        thread.start()
        while len(crowd.asked) < most:
            pass
        assert len([a for a in crowd.asked if not a.cancelled]) == most
        crowd.asked[0].finish(5)
        thread.join()
        running.close()
        assert all(a.cancelled for a in crowd.asked[1:])


def test_questions_are_taken_when_somebody_can_be_asked() -> None:
    taken: list[int] = []

    def questions():
        for i in range(10):
            taken.append(i)
            yield i

    running = dispatch(Workers(named("a")), questions(), 1.0)
    next(running)
    assert len(taken) == 1


def test_what_is_lost_with_a_worker_goes_to_another_one() -> None:
    def fate(asked: Asked) -> object:
        if asked.member.address == "b":
            crowd.present.pop("b", None)
            return "silent"
        return asked.question**2

    crowd = Workers(named("b", "a"), fate)
    found = sorted(dispatch(crowd, range(5), 1.0))
    assert [(n, a) for n, a, _ in found] == [(i, i * i) for i in range(5)]
    assert sum(lost for _, _, lost in found) == 1
    (first,) = (asked for asked in crowd.asked if asked.member.address == "b")
    assert first.cancelled


def test_an_answer_after_the_end_of_its_lease_counts_for_nothing() -> None:
    late: list[Asked] = []

    def fate(asked: Asked) -> object:
        if not late:
            late.append(asked)
            crowd.present.pop(asked.member.address)
            return "silent"
        if asked.question == 0:  # it is with another one now
            late[0].finish(-1)
        return asked.question**2

    crowd = Workers(named("a", "b"), fate)
    assert sorted(dispatch(crowd, range(3), 1.0)) == [(0, 0, 1), (1, 1, 0), (2, 4, 0)]


def test_who_is_refused_loses_the_question_and_others_are_preferred() -> None:
    crowd = Workers(named("bad", "good"), refused=lambda member, _: member.address == "bad")
    found = sorted(dispatch(crowd, range(4), 1.0))
    assert [(n, a) for n, a, _ in found] == [(i, i * i) for i in range(4)]


def test_what_every_worker_is_lost_with_is_given_up() -> None:
    crowd = Workers(named("a", "b"), fate=lambda asked: Lost.WORKER if asked.question == 1 else asked.question)
    assert sorted(dispatch(crowd, range(3), 1.0), key=lambda f: f[0]) == [(0, 0, 0), (1, None, LOST), (2, 2, 0)]


def dying(*deadly: int, slots: int = 1) -> Workers:
    """Some questions end their worker, and a new one comes in its place."""
    born = iter(range(10**6))

    def fate(asked: Asked) -> object:
        if asked.question in deadly:
            crowd.present.pop(asked.member.address, None)
            crowd.present.update(named(f"worker {next(born)}", slots=slots))
            return "silent"
        return asked.question

    crowd = Workers(named("a", "b", "c", slots=slots), fate)
    return crowd


@pytest.mark.parametrize("slots", [1, 2, 4])
@pytest.mark.parametrize("deadly", [(3,), (3, 4), (0, 1, 2, 3)])
def test_what_ends_its_workers_is_given_up_and_nothing_else_is(deadly: tuple[int, ...], slots: int) -> None:
    found = {number: answer for number, answer, _ in dispatch(dying(*deadly, slots=slots), range(9), 5.0)}
    assert found == {number: None if number in deadly else number for number in range(9)}


def test_what_was_lost_twice_has_a_worker_for_itself() -> None:
    crowd, beside = dying(2, slots=2), []
    fate = crowd.fate

    def watched(asked: Asked) -> object:
        others = [a.question for a in crowd.asked[:-1] if a.member == asked.member]
        beside.append((asked.question, others))
        return fate(asked)

    crowd.fate = watched
    list(dispatch(crowd, range(3), 5.0))
    asked = [others for question, others in beside if question == 2]
    assert len(asked) >= LOST and not any(asked[2:])


def test_workers_that_die_of_themselves_are_held_against_no_question() -> None:
    """Whatever is asked is lost forty times, and each time another worker is gone as well."""
    born, losses = iter(range(10**6)), iter(range(40))

    def fate(asked: Asked) -> object:
        if next(losses, None) is None:
            return asked.question
        crowd.present.clear()
        crowd.present.update(named(*(f"worker {next(born)}" for _ in range(3))))
        return "silent"

    crowd = Workers(named("a", "b", "c"), fate)
    assert [(n, a) for n, a, _ in dispatch(crowd, range(1), 5.0)] == [(0, 0)]
    assert len(crowd.asked) == 41


def test_a_connection_that_is_cut_is_held_against_no_question() -> None:
    cuts = iter(range(30))
    crowd = Workers(named("a"), fate=lambda asked: 7 if next(cuts, None) is None else Lost.WAY)
    assert list(dispatch(crowd, range(1), 5.0)) == [(0, 7, 30)]


def test_refusals_are_counted_apart_from_losses() -> None:
    told: list[int] = []

    class Refusing(Workers):
        def refuse(self, member: Member, answer: int, refused: int) -> bool:
            told.append(refused)
            return len(told) < 3

    ways = iter([Lost.WAY, Lost.WAY])
    crowd = Refusing(named("a", "b"), fate=lambda asked: next(ways, asked.question))
    assert list(dispatch(crowd, range(1), 5.0)) == [(0, 0, 4)]
    assert told == [0, 1, 2]


def test_where_nobody_comes_the_rest_is_handed_back() -> None:
    def fate(asked: Asked) -> object:
        if asked.question == 3:
            crowd.present.clear()
            return "silent"
        return asked.question

    crowd = Workers(named("a", "b"), fate)
    found = []
    with pytest.raises(Abandoned) as abandoned:
        for answered in dispatch(crowd, range(7), 0.01):
            found.append(answered[0])
    assert sorted([*found, *(number for number, _ in abandoned.value.rest)]) == list(range(7))


def test_who_comes_late_is_asked() -> None:
    crowd = Workers({})
    threading.Timer(0.05, lambda: crowd.present.update(named("a"))).start()
    assert len(list(dispatch(crowd, range(3), 20.0))) == 3


@pytest.mark.parametrize("seed", range(5))
def test_two_hundred_faults_lose_nothing_and_answer_nothing_twice(seed: int) -> None:
    """Workers die, say nothing, answer late, come back; questions outnumber faults."""
    pick, faults, born = random.Random(seed), iter(range(200)), iter(range(10**6))
    silent: list[Asked] = []

    def fate(asked: Asked) -> object:
        kind = pick.choice([*["fine"] * 6, "dies", "silent", "late"])
        if kind == "fine" or next(faults, None) is None:
            return asked.question**2
        if kind in ("silent", "late"):
            silent.append(asked)
        for late in [each for each in silent if each.cancelled and kind == "late"][:1]:
            silent.remove(late)
            late.finish(-1)
        crowd.present.pop(asked.member.address, None)
        crowd.present.update(named(f"worker {next(born)}"))
        return Lost.WORKER if kind == "dies" else "silent"

    crowd = Workers(named("a", "b", "c"), fate)
    found = list(dispatch(crowd, range(700), 5.0))
    assert sorted(number for number, _, _ in found) == list(range(700))
    assert all(answer == number**2 for number, answer, _ in found)
    assert next(faults, None) is None and sum(lost for _, _, lost in found) == 200


def test_a_worker_whose_canary_drifts_stands_out_and_the_others_do_not() -> None:
    drift, pick = Drift(), random.Random(0)
    ratios: dict[str, float] = {}
    for turn in range(12):
        for worker in "abcd":
            slower = 1.6 if worker == "c" and turn >= 4 else 1.0
            ratios[worker] = drift.add(worker, 1e-4 * slower * pick.uniform(1.0, 1.1))
    assert {worker for worker, ratio in ratios.items() if has_drifted(ratio)} == {"c"}


def test_one_slow_turn_is_no_drift_and_a_worker_alone_has_none() -> None:
    drift = Drift()
    assert [drift.add("a", seconds) for seconds in (1.0, 9.0, 9.0, 9.0)] == [1.0] * 4
    drift = Drift()
    for _ in range(5):
        drift.add("a", 1.0)
        drift.add("b", 1.0)
    assert not has_drifted(drift.add("a", 9.0))
