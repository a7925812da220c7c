"""What a long run on a borrowed machine keeps: the steps that are done, and the time that is left.

A step is done when a row says so. Rows are appended to one file the moment that they are known, so that a run which is
stopped, by its budget or by the machine, goes on from there; the last row of a key counts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

Row = dict[str, Any]

#: Results that stand; a step that was skipped or cut short is taken up again.
FINAL = frozenset(("ok", "wrong", "failed", "timeout"))


class OutOfTime(Exception):
    """A step's time was over before there was a result for any of its contenders."""


@dataclass(frozen=True)
class Step:
    """One thing to do for one network.

    Attributes
    ----------
    kind
        "tune" or "race".
    network, dtype, batch
        What on.
    variant
        Of "tune", the searcher; of "race", which race.
    needs
        Steps of the same network of which one has to be "ok" before, as (kind, variant); none where it is empty.
    unless
        Steps of the same network of which one that is "ok" makes this one superfluous.
    contenders
        Of a race; each has a row of its own.
    least_s, most_s
        Not worth starting with less time than this, and stopped after this, in seconds.
    resumable
        What it found is not lost when it is stopped, and the next attempt is the shorter for it: it is taken up again
        after the steps behind it, and given up when it was stopped after `most_s` and had found nothing.
    """

    kind: str
    network: str
    dtype: str
    batch: int
    variant: str
    needs: tuple[tuple[str, str], ...] = ()
    unless: tuple[tuple[str, str], ...] = ()
    contenders: tuple[str, ...] = ("",)
    least_s: float = 30.0
    most_s: float = 240.0
    resumable: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind} {self.variant}: {self.network} {self.dtype} batch {self.batch}"

    def key(self, contender: str = "") -> tuple[str, str, str, int, str, str]:
        """What its row is found by."""
        return self.kind, self.network, self.dtype, self.batch, self.variant, contender

    def row(self, contender: str, result: Mapping[str, Any]) -> Row:
        """A result as a row."""
        kind, network, dtype, batch, variant, _ = self.key()
        where = {"kind": kind, "network": network, "dtype": dtype, "batch": batch, "variant": variant}
        return {**where, "contender": contender, **result}


class Ledger:
    """The rows of a file: one JSON object per line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: dict[tuple[Any, ...], Row] = {_key(row): row for row in _read(path)}

    def add(self, rows: Iterable[Row]) -> None:
        """Append rows to the file."""
        with self.path.open("a") as stream:
            for row in rows:
                stream.write(json.dumps(row) + "\n")
                self._rows[_key(row)] = row

    def get(self, step: Step, contender: str = "") -> Row | None:
        return self._rows.get(step.key(contender))

    def rest(self, step: Step) -> Step:
        """The step with those contenders that have no row that stands."""
        rows = {contender: self.get(step, contender) for contender in step.contenders}
        left = tuple(c for c, row in rows.items() if row is None or row["status"] not in FINAL)
        return replace(step, contenders=left)

    def done(self, step: Step) -> bool:
        """Whether every contender of a step has a row that stands."""
        return not self.rest(step).contenders

    def ready(self, step: Step) -> bool:
        """Whether what a step needs came out well, and it is not superfluous."""
        here = (step.network, step.dtype, step.batch)

        def well(wanted: Iterable[tuple[str, str]]) -> bool:
            rows = [self._rows.get((kind, *here, variant, "")) for kind, variant in wanted]
            return any(row is not None and row["status"] == "ok" for row in rows)

        return (not step.needs or well(step.needs)) and not well(step.unless)


class Budget:
    """Seconds that a run may take, from now on; a reserve of them is for writing down what was found."""

    def __init__(self, seconds: float, reserve: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + seconds - reserve

    def left(self) -> float:
        return self._end - self._clock()


def run(
    steps: Sequence[Step],
    ledger: Ledger,
    budget: Budget,
    runner: Callable[[Step, float], Mapping[str, Mapping[str, Any]]],
    report: Callable[[str], None],
    after: Callable[[], None],
) -> bool:
    """Take the steps in their order; whether all of them were taken.

    Parameters
    ----------
    runner
        (step with the contenders that are left, seconds that it may take) -> contender -> result with a `status`; of a
        resumable step that was stopped also `new_records`, how much it found. It keeps to its time.
    report
        Called with one line for every step and row.
    after
        Called after every step, to copy away what is there.

    A step that finds too little time left is passed over, and a shorter one behind it may still be taken. Where time
    ran out because of the budget, and not because of the step's own limit, or where the step can go on from what it
    found, nothing is final; what can go on is taken up again after all others.
    """
    while True:
        complete, again = _pass(steps, ledger, budget, runner, report, after)
        if not again:
            return complete


def _pass(
    steps: Sequence[Step],
    ledger: Ledger,
    budget: Budget,
    runner: Callable[[Step, float], Mapping[str, Mapping[str, Any]]],
    report: Callable[[str], None],
    after: Callable[[], None],
) -> tuple[bool, bool]:
    """Whether all steps were taken; and whether one was stopped that can go on."""
    complete, again = True, False
    for step in steps:
        rest = ledger.rest(step)
        if not rest.contenders or not ledger.ready(step):
            continue
        left = budget.left()
        if left < step.least_s:
            complete = False
            continue
        limit = min(step.most_s, left)
        cut = limit < step.most_s
        report(f"{step.name}: up to {limit:.0f} s")
        rows = []
        for contender, result in runner(rest, limit).items():
            found = result["status"] == "timeout" and result.get("new_records", 0) > 0
            late = found or (result["status"] == "timeout" and cut)
            again = again or (found and not cut)
            rows.append(step.row(contender, {**result, "status": "skipped"} if late else result))
        ledger.add(rows)
        for row in rows:
            report("  " + summary(row))
        complete = complete and ledger.done(step)
        after()
    return complete, again


def summary(row: Row) -> str:
    """A row in one line."""
    parts = [row["contender"] or row["variant"], row["status"]]
    if row.get("reason"):
        parts.append(str(row["reason"])[:160])
    for name in ("call_s", "pipelined_s"):
        if row.get(name):
            parts.append(f"{name[:-2]} {row[name][0] * 1e3:.4f} ms")
    if row.get("call_ratio"):
        parts.append("ratio " + "..".join(f"{r:.3f}" for r in row["call_ratio"]))
    if row.get("rivals"):
        parts.append(f"ships {row['shipped']}, {row['partitions']}, {row['tune_s']:.0f} s")
    return "  ".join(parts)


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("kind", "network", "dtype", "batch", "variant", "contender"))


def _read(path: Path) -> Iterator[Row]:
    """The rows of a file; a last line that was cut off is passed over."""
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue
