"""Progress: a bar on a terminal, lines elsewhere, and nothing that grows with the number of steps."""

from __future__ import annotations

import io
import threading

import pytest

from collage.cli import progress_bar
from collage.cli.progress_bar import ProgressBar, duration


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """Stands in for the `time` module: time passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress_bar, "time", clock)
    return clock


def test_without_a_terminal_there_are_few_lines_and_no_thread(clock: Clock) -> None:
    stream, threads = io.StringIO(), threading.active_count()
    reporter = ProgressBar(stream, line_interval_s=15.0)
    reporter.stage("measuring", 1000)
    for _ in range(500):
        clock.now += 0.125  # exact in binary
        reporter.step("conv2d+relu")
    assert threading.active_count() == threads
    reporter.close()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "measuring: 1000 to do"
    assert lines[1:] == [
        *(
            "measuring: 120 of 1000 (conv2d+relu), 1 min 50 s left",
            "measuring: 240 of 1000 (conv2d+relu), 1 min 35 s left",
        ),
        *(
            "measuring: 360 of 1000 (conv2d+relu), 1 min 20 s left",
            "measuring: 480 of 1000 (conv2d+relu), 1 min 05 s left",
        ),
    ]


def test_a_stage_that_ends_says_how_much_and_how_long(clock: Clock) -> None:
    stream = io.StringIO()
    reporter = ProgressBar(stream)
    reporter.stage("measuring", 12)
    for _ in range(12):
        clock.now += 1.0
        reporter.step("add")
    reporter.stage("compiling")
    reporter.stage("writing")
    reporter.close()
    assert "measuring: 12 in 12 s" in stream.getvalue().splitlines()
    assert "compiling in" not in stream.getvalue(), "it took no time"


def test_the_last_stage_leaves_a_line_where_it_is_known_to_be_done(clock: Clock) -> None:
    done, broken = io.StringIO(), io.StringIO()
    for stream, end in ((done, ProgressBar.finish), (broken, ProgressBar.close)):
        reporter = ProgressBar(stream)
        reporter.stage("confirming end to end")
        clock.now += 84.0
        end(reporter)
        reporter.close()
    assert "confirming end to end in 1 min 24 s" in done.getvalue().splitlines()
    assert broken.getvalue().splitlines() == ["confirming end to end"]


def test_steps_that_only_tell_what_comes_next_do_not_count() -> None:
    stream = Terminal()
    reporter = ProgressBar(stream)
    reporter.stage("measuring", 4)
    reporter.step("conv2d", 0)
    reporter.step("conv2d", 2)
    reporter.close()
    assert "2/4" in stream.getvalue() and "3/4" not in stream.getvalue()


def test_on_a_terminal_the_bar_shows_stage_count_and_label_and_goes_away() -> None:
    stream = Terminal()
    reporter = ProgressBar(stream)
    reporter.stage("measuring", 10)
    reporter.step("softmax [0]", 3)
    reporter.note("a backend failed [twice]")
    reporter.close()
    text = stream.getvalue()
    assert "measuring" in text and "3/10" in text
    assert "note: a backend failed [twice]\n" in text, "it stays when the bar goes away"
    assert threading.active_count() == 1 or all("refresh" not in t.name for t in threading.enumerate())
    assert text.rstrip().endswith("\x1b[2K"), "the bar is wiped from the terminal"


def test_closing_twice_or_before_anything_is_harmless() -> None:
    reporter = ProgressBar(Terminal())
    reporter.close()
    reporter.stage("compiling")
    reporter.close()
    reporter.close()


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (60, "1 min 00 s"), (3599, "59 min 59 s"), (7500, "2 h 05 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
