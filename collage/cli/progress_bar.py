"""ProgressBar: what is being measured, how much is done, and the time left.

It must not disturb what is being timed: the bar is drawn twice per second (a drawing takes under a millisecond of one
core), and where there is no terminal, a line is written every `line_interval_s` seconds and no thread runs at all.
"""

from __future__ import annotations

import time
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from collage.progress import Reporter

_REDRAWS_PER_SECOND = 2.0


class ProgressBar(Reporter):
    """A bar on a terminal, lines in a log file.

    Parameters
    ----------
    stream
        Where to; whether it is a terminal decides between bar and lines.
    line_interval_s
        Seconds between two lines of one stage.
    """

    def __init__(self, stream: TextIO, line_interval_s: float = 15.0) -> None:
        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._interval = line_interval_s
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._name = ""
        self._total: int | None = None
        self._done = 0
        self._started = self._last_line = time.monotonic()

    def stage(self, name: str, total: int | None = None) -> None:
        self._finish_stage()
        self._name, self._total, self._done = name, total, 0
        self._started = self._last_line = time.monotonic()
        if not self._console.is_terminal:
            self._line(f"{name}{f': {total} to do' if total else ''}")
            return
        if self._bar is None:
            self._bar = _bar(self._console)
            self._bar.start()
        self._task = self._bar.add_task(name, total=total, label="", left="")

    def step(self, label: str, count: int = 1) -> None:
        self._done += count
        left = self._time_left()
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done, label=label, left=left)
        elif time.monotonic() - self._last_line >= self._interval:
            self._last_line = time.monotonic()
            of = f" of {self._total}" if self._total else ""
            done = f": {self._done}{of} ({label})" if self._done else f": {label}"
            self._line(f"{self._name}{done}{', ' if left else ''}{left}")

    def note(self, line: str) -> None:
        self._line(f"note: {line}")

    def finish(self) -> None:
        self._finish_stage()
        self.close()

    def close(self) -> None:
        """Take the bar away; a stage that was not done leaves no line."""
        self._name, self._task = "", None
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _finish_stage(self) -> None:
        """Leave a line behind that says what was done; quick stages leave none."""
        elapsed = time.monotonic() - self._started
        if self._name and elapsed >= 1.0:
            of = f" of {self._total}" if self._total and self._done < self._total else ""
            done = f": {self._done}{of}" if self._done else ""
            self._line(f"{self._name}{done} in {duration(elapsed)}")
        if self._bar is not None and self._task is not None:
            self._bar.remove_task(self._task)
        self._name, self._task = "", None

    def _line(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)

    def _time_left(self) -> str:
        """Builds and measurements alternate in batches: only the average over the stage so far is a fair guess."""
        elapsed = time.monotonic() - self._started
        if not self._total or self._done < 0.02 * self._total or elapsed < 10.0:
            return ""
        return f"{duration(elapsed / self._done * max(0, self._total - self._done))} left"


def _bar(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}", markup=False),
        TextColumn("{task.fields[label]}", markup=False, style="dim"),
        console=console,
        transient=True,
        refresh_per_second=_REDRAWS_PER_SECOND,
        redirect_stdout=False,
        redirect_stderr=False,
    )


def duration(seconds: float) -> str:
    """Such as `45 s`, `3 min 20 s`, `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
