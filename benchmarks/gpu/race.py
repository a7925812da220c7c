"""A race: contestants in processes of their own, checked against float64, timed interleaved (A B C A B C).

They prepare side by side, and load onto the device one after another, so that nothing disturbs what a compiler tries
out there. What slows one turn (clocks, heat, a neighbour) slows the turns beside it: the ratio of two contestants is
the median of the ratios of turns that followed each other, with its confidence interval.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.contestant import REFERENCE, Load, Loaded, Timed, contestant
from benchmarks.gpu.isolated import Isolated
from benchmarks.gpu.ledger import OutOfTime
from collage.measure.statistics import converged, median_interval, paired_ratio

#: Largest error of a whole network relative to its largest output, by the type that it computes in.
TOLERANCES: Mapping[str, float] = {"float32": 1e-3, "float16": 3e-2, "bfloat16": 1e-1}
#: TF32 keeps as many digits as float16.
TF32_TOLERANCE = 3e-2
#: Seconds that one turn should take, and how many runs it has.
_TURN_S = 0.05
_RUNS = (5, 60)
_TURNS = (8, 40)
_CLOSE = 0.01


@dataclass
class Result:
    """The result of one contestant; seconds.

    Attributes
    ----------
    status
        "ok", "wrong", "failed", "timeout", or "skipped" where the time did not reach.
    call, device
        Of each turn, the median over its runs; pipelined: of each turn, per run.
    states
        Of the device after each turn, where it tells them.
    error
        Against float64, relative to the largest output.
    """

    status: str
    reason: str = ""
    load_s: float = math.nan
    error: float = math.nan
    call: list[float] = field(default_factory=list)
    device: list[float] = field(default_factory=list)
    pipelined: list[float] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)

    def row(self, base: Result | None) -> dict[str, Any]:
        """JSON-ready: medians with intervals, in seconds, and ratios to another contestant's turns."""
        made: dict[str, Any] = {"status": self.status, "reason": self.reason, "versions": self.versions}
        made |= {name: value for name in ("load_s", "error") if not math.isnan(value := getattr(self, name))}
        for name in ("call", "device", "pipelined"):
            samples = getattr(self, name)
            if samples:
                made[f"{name}_s"] = _finite(median_interval(samples))
                if base is not None and base is not self and len(getattr(base, name)) == len(samples):
                    made[f"{name}_ratio"] = _finite(paired_ratio(samples, getattr(base, name)))
        return {**made, **_conditions(self.states), "turns": len(self.call)}


def race(
    loads: Sequence[Load], deadline: float, log: Path | None = None, load_limit_s: float = 240.0
) -> dict[str, Result]:
    """Name -> result, for contestants on one network.

    Parameters
    ----------
    loads
        The contestants; ratios are to the first one.
    deadline
        By `time.monotonic()`; loading may take all but a fifth of the time until then.
    log
        File for what contestants print; None leaves it where this process's output goes.
    load_limit_s
        Of one contestant, from when it may use the device.

    Raises
    ------
    OutOfTime
        There was none for the reference.
    """
    until = time.monotonic() + 0.8 * (deadline - time.monotonic())
    with ExitStack() as stack:
        players = {load.name: stack.enter_context(closing(_start(load, log))) for load in loads}
        exact = _reference(loads[0], until, log)
        results = {load.name: _checked(load, players[load.name], until, load_limit_s, exact) for load in loads}
        _interleave(players, results, deadline)
    return results


def tolerance_of(load: Load) -> float:
    return max(TOLERANCES[load.dtype], TF32_TOLERANCE if load.precision == "tf32" else 0.0)


def error_of(outputs: Sequence[np.ndarray], exact: Sequence[np.ndarray]) -> float:
    """The largest difference relative to the largest magnitude of its output; infinite where shapes differ or a value
    is not a number.
    """
    worst = 0.0 if len(outputs) == len(exact) else math.inf
    for ours, wanted in zip(outputs, exact, strict=False):
        if ours.shape != wanted.shape:
            return math.inf
        difference = float(np.max(np.abs(ours.astype("float64") - wanted), initial=0.0))
        largest = float(np.max(np.abs(wanted), initial=0.0))
        worst = max(worst, math.inf if math.isnan(difference) else difference / max(largest, 1e-30))
    return worst


def _start(load: Load, log: Path | None) -> Isolated:
    return Isolated(contestant, load, torch=load.torch, log=log)


def _reference(load: Load, deadline: float, log: Path | None) -> tuple[np.ndarray, ...]:
    """The network's outputs in float64."""
    facts = {name: getattr(load, name) for name in ("network", "dtype", "batch", "device", "seed")}
    with closing(_start(Load(REFERENCE, **facts), log)) as player:
        try:
            player.receive(deadline)
            loaded: Loaded = player.ask("load", deadline)
        except TimeoutError:
            raise OutOfTime("there was no time for the reference in float64") from None
        except RuntimeError as error:
            raise RuntimeError(f"there is no reference in float64: {error}") from error
    return loaded.outputs


def _checked(load: Load, player: Isolated, until: float, limit_s: float, exact: Sequence[np.ndarray]) -> Result:
    """Load a contestant and check its outputs; one that is not "ok" is ended.

    `until` is the end of loading for the whole race, `limit_s` this contestant's own limit.
    """
    limit = until
    try:
        player.receive(until)
        limit = time.monotonic() + limit_s
        loaded: Loaded = player.ask("load", min(limit, until))
        error = error_of(loaded.outputs, exact)
        result = Result("ok", load_s=loaded.seconds, error=error, versions=loaded.versions)
        if not error <= tolerance_of(load):
            result.status, result.reason = "wrong", f"off by {error:.3g}, relative to the largest output"
    except TimeoutError as late:
        result = Result("timeout", str(late))
        if until <= limit:
            result = Result("skipped", "the race had no time for it to load")
    except RuntimeError as failed:
        result = Result("failed", str(failed))
    if result.status != "ok":
        player.close()
    return result


def _interleave(players: Mapping[str, Isolated], results: Mapping[str, Result], deadline: float) -> None:
    """Rounds of turns until all medians are known to a hundredth, or there were enough of them, or time is up."""
    runs: dict[str, int] = {}
    for number in range(_TURNS[1] + 1):
        for name in [name for name, result in results.items() if result.status == "ok"]:
            result = results[name]
            try:
                timed: Timed = players[name].ask(runs.get(name, _RUNS[0]), max(deadline, time.monotonic() + 20.0))
            except (TimeoutError, RuntimeError) as error:
                result.status = "timeout" if isinstance(error, TimeoutError) else "failed"
                result.reason = str(error)
                players[name].close()
                continue
            median = float(np.median(timed.call))
            if number == 0:  # only to learn how many runs make a turn
                runs[name] = int(np.clip(_TURN_S / max(median, 1e-9), *_RUNS))
                continue
            result.call.append(median)
            result.device.append(float(np.median(timed.device)))
            result.pipelined.append(timed.pipelined)
            result.states += [] if timed.state is None else [timed.state]
        alive = [result for result in results.values() if result.status == "ok"]
        settled = number >= _TURNS[0] and all(converged(result.call, _CLOSE) for result in alive)
        if settled or time.monotonic() > deadline:
            return


def _conditions(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Clock and power over the turns as least, median and greatest, and in how many the clock was low for a reason."""
    if not states:
        return {}
    made: dict[str, Any] = {}
    for name in ("sm_mhz", "watts"):
        values = [state[name] for state in states]
        made[name] = [min(values), float(np.median(values)), max(values)]
    return {**made, "low_clock": dict(Counter(reason for state in states for reason in state["reasons"]))}


def _finite(interval: tuple[float, float, float]) -> list[float]:
    """An interval for JSON: too few samples have no bounds, which are then left out."""
    return [number for number in interval if math.isfinite(number)]
