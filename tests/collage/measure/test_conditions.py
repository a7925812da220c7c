"""A busy machine is noticed, by what processors did and not by how long our samples took."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from collage.cost.disturbance import was_disturbed
from collage.measure import conditions
from collage.measure.conditions import Conditions, Repeats, Watch

TICKS = os.sysconf("SC_CLK_TCK")


class Machine:
    """Two processors, as the kernel and our clocks tell of them."""

    def __init__(self, stat: Path) -> None:
        self.stat = stat
        self.clock = self.ours = 0.0
        self.core_to_core = 1.0
        self.pass_time(1.0)

    def pass_time(self, seconds: float, ours: float = 0.0, others: float = 0.0, stolen: float = 0.0) -> None:
        """Our processor time, that of others, and what was stolen: shares of both processors."""
        self.clock += seconds
        self.ours += ours * 2 * seconds
        before = [line.split() for line in self.stat.read_text().splitlines()[1:]] if self.stat.exists() else []
        idle, steal = (float(before[0][4]), float(before[0][8])) if before else (0.0, 0.0)
        idle += (1 - ours - others - stolen) * seconds * TICKS
        steal += stolen * seconds * TICKS
        row = f"9 9 9 {idle:.0f} 0 9 9 {steal:.0f} 0 0"
        self.stat.write_text(f"cpu 0 0 0 0 0 0 0 0 0 0\ncpu0 {row}\ncpu1 {row}\ncpu7 1 1 1 999999 1 1 1 1 1 1\n")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    state = Machine(tmp_path / "stat")
    monkeypatch.setattr(conditions, "_STAT", state.stat)
    monkeypatch.setattr(conditions, "_processors", lambda: {0, 1})
    monkeypatch.setattr(conditions, "core_to_core", lambda: state.core_to_core)
    monkeypatch.setattr("time.perf_counter", lambda: state.clock)
    monkeypatch.setattr("time.process_time", lambda: state.ours)
    monkeypatch.setattr(Watch, "_canary", lambda watch: setattr(watch, "_best", 1.0) or 1.0)
    yield state


def test_our_own_work_is_no_load(machine: Machine) -> None:
    with (watch := Watch()):
        machine.pass_time(1.0, ours=0.9, others=0.04)
    assert watch.conditions.load == pytest.approx(0.04, abs=0.015)
    assert not watch.conditions.disturbed


def test_one_busy_neighbour_is_noticed_within_a_tenth_of_a_second(machine: Machine) -> None:
    with (watch := Watch()):
        machine.pass_time(0.1, ours=0.5, others=0.5)
    assert watch.conditions.load > 0.3 and watch.conditions.disturbed


def test_stolen_time_is_noticed_and_is_not_load(machine: Machine) -> None:
    with (watch := Watch()):
        machine.pass_time(1.0, ours=0.5, stolen=0.1)
    assert watch.conditions.load < 0.02 < watch.conditions.steal and watch.conditions.disturbed


def test_what_is_shorter_than_a_tick_is_not_judged(machine: Machine) -> None:
    with (watch := Watch()):
        machine.pass_time(0.002, others=1.0)
    assert watch.conditions == Conditions(canary=1.0, core_to_core=1.0)


@pytest.mark.parametrize(("before", "after"), [(4.5, 1.0), (1.0, 4.5)])
def test_cores_that_are_far_from_each_other_are_noticed_before_and_after(
    machine: Machine, before: float, after: float
) -> None:
    machine.core_to_core = before
    with (watch := Watch()):
        machine.pass_time(1.0, ours=0.9)
        machine.core_to_core = after
    assert watch.conditions.core_to_core == 4.5 and watch.conditions.disturbed


def test_a_slow_clock_is_noticed() -> None:
    assert Conditions(canary=1.5).disturbed and not Conditions(canary=1.1).disturbed


def test_where_the_kernel_tells_nothing_nothing_is_disturbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "_STAT", tmp_path / "missing")
    with (watch := Watch()):
        pass
    assert watch.conditions == Conditions() and not watch.conditions.disturbed


def test_this_machine_can_be_watched() -> None:
    with (watch := Watch(processes=[os.getppid(), 2**22 + 1])):
        sum(range(10_000))
    assert 0.0 <= watch.conditions.load <= 1.0 and watch.conditions.canary >= (1.0 if conditions._STAT.exists() else 0)
    assert was_disturbed(watch.conditions.as_dict()) == watch.conditions.disturbed
    assert not was_disturbed({})


class Scripted:
    """A watch that finds the given conditions, one after the other."""

    def __init__(self, found: Iterator[Conditions]) -> None:
        self.found = found
        self.conditions = Conditions()

    def __enter__(self) -> None:
        self.conditions = next(self.found)

    def __exit__(self, *_: object) -> None:
        pass


def sampling(monkeypatch: pytest.MonkeyPatch, seconds: float, *loads: float) -> Repeats:
    """Repeats where every turn of sampling takes so many seconds and meets the next load."""
    now = count(0.0, seconds)
    monkeypatch.setattr(conditions.time, "monotonic", lambda: next(now))
    repeats = Repeats()
    monkeypatch.setattr(repeats, "_watch", Scripted(map(Conditions, loads)))
    return repeats


def test_what_was_disturbed_is_sampled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = count()
    found = sampling(monkeypatch, 0.1, 0.5, 0.3, 0.0).calmest(lambda: next(taken))
    assert found == (2, Conditions(0.0))


def test_on_a_machine_that_is_always_busy_repeats_end_and_the_calmest_samples_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = count()
    repeats = sampling(monkeypatch, 0.6, 0.5, 0.3, 0.6, 0.7)
    assert repeats.calmest(lambda: next(taken)) == (1, Conditions(0.3))
    assert repeats.calmest(lambda: next(taken)) == (2, Conditions(0.6))


def test_a_larger_share_allows_more_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = count()
    repeats = sampling(monkeypatch, 0.6, 0.5, 0.4, 0.3, 0.2)
    assert repeats.calmest(lambda: next(taken), share=1.0) == (2, Conditions(0.3))


def test_long_samples_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sampling(monkeypatch, 30.0, 0.5).calmest(lambda: "once") == ("once", Conditions(0.5))
