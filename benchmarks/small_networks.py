"""Thirty tunes of three small networks: `python -m benchmarks.small_networks --folder FOLDER`.

Networks under a millisecond, where a call's overhead and a busy neighbour decide as much as kernels do. Each is tuned
ten times with empty records and seeds of its own, every other time beside a process that spins. Then everything that
any tune shipped, every single-backend plan and the rivals by their own front doors are raced twice: on the machine as
it is by then, which you leave quiet, and beside such a process. A tune is right when what it shipped is within 3% of
the best of all of them on the quiet machine; the goal is 28 of 30. Which engine is the fastest may depend on the
neighbour, so the table says, too, how tunes beside one are judged beside one.

What is in the folder is not tuned or raced again. With `--minutes` no tune and no race begins after so many: the exit
status is 3 then, and the same command goes on.

The best is chosen by every other round, and ratios are of the rounds between: the fastest of a dozen by the same rounds
would look faster than it is.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.referee.__main__ import add_terms, terms_of
from benchmarks.referee.intervals import Interval, ratio_interval
from benchmarks.referee.origin import origin
from benchmarks.referee.process import Entry
from benchmarks.referee.race import Repetition, Terms, race
from benchmarks.referee.tuning import TuningError, ships, tune
from benchmarks.referee.verdict import BESIDE, TOLERANCE
from benchmarks.workloads import QUICK, build
from collage.files import replacing

#: What ships may be slower than the best contestant by this.
WITHIN = 0.03
#: Share of the tunes that have to be right.
GOAL = 28 / 30
#: Ends with the process of this number.
_SPIN = "from collage.measure.helper import end_with; end_with({}); exec('while True: pass')"


@contextmanager
def neighbour(busy: bool) -> Iterator[None]:
    """Beside a process that spins, or not. It has a session of its own, as programs of others have: Linux shares the
    processors among sessions.
    """
    if not busy:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", _SPIN.format(os.getpid())], start_new_session=True)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def placement_of(plan: Mapping[str, Any]) -> str:
    """Short and the same for plans that run the same nodes on the same backends."""
    parts = [[p["backend"], p["nodes"], p.get("composites")] for p in plan.get("partitions", [])]
    return hashlib.sha256(json.dumps([plan.get("choice") if not parts else "", parts]).encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Outcome:
    """One tune, judged.

    Attributes
    ----------
    network, tune, busy
        Which one; whether it had a busy neighbour.
    seconds
        Time to the plan.
    shipped, ships
        Digest of its placement; backend -> partitions.
    best
        The fastest contestant on a quiet machine.
    speedup
        Of what shipped over the best; None when it does not run, or is wrong.
    best_as_tuned, speedup_as_tuned
        The same beside a busy neighbour where the tune had one; else as on the quiet machine.
    """

    network: str
    tune: int
    busy: bool
    seconds: float
    shipped: str
    ships: Mapping[str, int]
    best: str
    speedup: Interval | None
    best_as_tuned: str
    speedup_as_tuned: Interval | None

    @property
    def right(self) -> bool:
        """Within 3% of the best on a quiet machine."""
        return _is_near(self.speedup)

    @property
    def right_as_tuned(self) -> bool:
        """Within 3% of the best in the conditions of the tune."""
        return _is_near(self.speedup_as_tuned)


def _is_near(speedup: Interval | None) -> bool:
    return speedup is not None and speedup.median >= 1.0 - WITHIN


@dataclass(frozen=True)
class Judged:
    """The tunes of one network, and the races that judged them, on a quiet machine and beside a busy neighbour."""

    terms: Terms
    outcomes: Sequence[Outcome]
    repetitions: Sequence[Repetition]
    beside_busy: Sequence[Repetition]


def speedups(repetitions: Sequence[Repetition]) -> tuple[str, dict[str, Interval]]:
    """The fastest contestant of right numbers by every other round, and the speed-up of each over it by the others.

    Raises
    ------
    ValueError
        No contestant ran in every repetition.
    """
    names = [
        name
        for name in repetitions[0].medians
        if all(name in r.medians and r.errors[name] <= TOLERANCE for r in repetitions) and name not in BESIDE
    ]
    if not names:
        raise ValueError("no contestant ran in every repetition")
    even = {name: np.concatenate([r.medians[name][::2] for r in repetitions]) for name in names}
    best = min(names, key=lambda name: float(np.median(even[name])))
    odd = {name: [r.medians[name][1::2] for r in repetitions] for name in names}
    return best, {name: ratio_interval(odd[best], odd[name]) for name in names}


def facts_file(folder: Path, network: str, number: int) -> Path:
    """What is known of a tune; there when it is done."""
    return folder / f"{network}.{number}.json"


def tune_once(network: str, number: int, folder: Path, options: Sequence[str]) -> None:
    """Tune it with empty records into FOLDER/NETWORK.NUMBER.so, beside its plan and a file of facts."""
    facts = facts_file(folder, network, number)
    busy = number % 2 == 1
    with tempfile.TemporaryDirectory(prefix="small-networks-") as temporary, neighbour(busy):
        model = Path(temporary) / f"{network}.onnx"
        model.write_bytes(build(network).SerializeToString(deterministic=True))
        records = Path(temporary) / "records.db"
        found = tune(model, folder / f"{network}.{number}.so", records, [*options, "--seed", str(number)])
    with replacing(facts) as partial:
        partial.write_text(json.dumps({"busy": busy, "seconds": round(found.seconds, 1)}) + "\n")


def judge_network(network: str, tunes: int, folder: Path, rivals: Sequence[str], terms: Terms) -> Judged:
    """Race what the tunes shipped against each other, the single-backend plans and the rivals; write what was seen."""
    model, single = folder / f"{network}.onnx", folder / f"{network}.single"
    model.write_bytes(build(network).SerializeToString(deterministic=True))
    if not single.exists():
        with tempfile.TemporaryDirectory(prefix="single-", dir=folder) as temporary:
            compiled = Path(temporary) / "single"
            command = [sys.executable, "-m", "benchmarks.referee.single", str(model), str(compiled)]
            subprocess.run([*command, "--threads", str(terms.threads)], check=True)
            compiled.rename(single)
    plans = {i: json.loads((folder / f"{network}.{i}.plan.json").read_text()) for i in range(tunes)}
    facts = {i: json.loads(facts_file(folder, network, i).read_text()) for i in range(tunes)}
    shipped = {i: placement_of(plan) for i, plan in plans.items()}
    entries = [Entry(kind, kind, model) for kind in rivals if kind not in BESIDE]
    entries += [Entry(f"{path.stem} alone", "collage", path) for path in sorted(single.glob("*.so"))]
    first = {placement: i for i, placement in sorted(shipped.items(), reverse=True)}
    entries += [Entry(placement, "collage", folder / f"{network}.{i}.so") for placement, i in first.items()]
    races = {}
    for busy in (False, True):
        with neighbour(busy):
            races[busy] = race(model, entries, terms)
    found_best = {busy: speedups(repetitions) for busy, repetitions in races.items()}
    best, ratios = found_best[False]
    outcomes = [
        Outcome(
            network,
            i,
            facts[i]["busy"],
            facts[i]["seconds"],
            shipped[i],
            ships(plans[i]),
            best,
            ratios.get(shipped[i]),
            found_best[facts[i]["busy"]][0],
            found_best[facts[i]["busy"]][1].get(shipped[i]),
        )
        for i in range(tunes)
    ]
    found = Judged(terms, outcomes, races[False], races[True])
    with replacing(_judged_file(folder, network)) as partial:
        partial.write_text(json.dumps(asdict(found)) + "\n")
    return found


def judged_before(folder: Path, network: str, tunes: int) -> Judged | None:
    """What an earlier run saw of so many tunes; None where there was none."""
    path = _judged_file(folder, network)
    found = msgspec.convert(json.loads(path.read_text()), Judged) if path.exists() else None
    return found if found is not None and len(found.outcomes) == tunes else None


def _judged_file(folder: Path, network: str) -> Path:
    return folder / f"{network}.judged.json"


def table(outcomes: Sequence[Outcome]) -> Table:
    """A row per tune."""
    result = Table(box=None, pad_edge=False)
    for title in ("tune", "neighbour", "ships", "speed-up over the best, quiet", "best", "as tuned", "best"):
        result.add_column(title)
    for found in outcomes:
        result.add_row(
            f"{found.network} {found.tune}",
            "busy" if found.busy else "quiet",
            f"{found.shipped}: " + ", ".join(f"{count} {backend}" for backend, count in found.ships.items()),
            _told(found.speedup),
            found.best,
            _told(found.speedup_as_tuned),
            found.best_as_tuned,
            style=None if found.right else "bold",
        )
    return result


def _told(ratio: Interval | None) -> str:
    return f"{ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f})" if ratio else "does not run"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(QUICK))
    parser.add_argument("--tunes", type=int, default=10, help="of each network")
    parser.add_argument("--folder", type=Path, default=Path("build/small"), help="of plans and models")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after which no tune and no race begins")
    parser.add_argument("--effort", help="of `collage tune`")
    parser.add_argument("--tune", default="", metavar="OPTIONS", help="more options of `collage tune`, in one word")
    parser.add_argument("-o", "--out", type=Path, help="what was found; FOLDER/small.json by default")
    add_terms(parser)
    options = parser.parse_args(arguments)
    terms = terms_of(parser, options, Terms().seeds)
    rivals = [kind for kind in options.rivals.split(",") if kind]
    more = [*(["--effort", options.effort] if options.effort else []), *shlex.split(options.tune)]
    options.folder.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if sys.stdout.isatty() else 120)
    until = time.monotonic() + 60.0 * options.minutes
    judged: dict[str, Judged] = {}
    try:
        for network in options.networks:
            for number in range(options.tunes):
                if facts_file(options.folder, network, number).exists():
                    continue
                if time.monotonic() >= until:
                    return _go_on(console)
                console.print(f"{network}: tune {number + 1} of {options.tunes}", style="dim")
                tune_once(network, number, options.folder, more)
            known = judged_before(options.folder, network, options.tunes)
            if known is None and time.monotonic() >= until:
                return _go_on(console)
            judged[network] = known or judge_network(network, options.tunes, options.folder, rivals, terms)
    except (TuningError, ValueError, subprocess.CalledProcessError) as error:
        parser.error(str(error))
    outcomes = [outcome for found in judged.values() for outcome in found.outcomes]
    right = sum(found.right for found in outcomes)
    console.print(table(outcomes))
    for busy in (False, True):
        some = [found for found in outcomes if found.busy == busy]
        console.print(f"{'busy' if busy else 'quiet'}: {sum(found.right for found in some)} of {len(some)}")
    console.print(f"within {WITHIN:.0%} of the best: {right} of {len(outcomes)}")
    as_tuned = sum(found.right_as_tuned for found in outcomes)
    console.print(f"within {WITHIN:.0%} of the best in the conditions of the tune: {as_tuned} of {len(outcomes)}")
    written = {
        **origin(),
        "terms": {network: asdict(found.terms) for network, found in judged.items()},
        "right": right,
        "right as tuned": as_tuned,
        "tunes": [{**asdict(found), "right": found.right} for found in outcomes],
        "races": {network: [asdict(r) for r in found.repetitions] for network, found in judged.items()},
        "races beside a busy neighbour": {
            network: [asdict(r) for r in found.beside_busy] for network, found in judged.items()
        },
    }
    (options.out or options.folder / "small.json").write_text(json.dumps(written) + "\n")
    return 0 if right >= GOAL * len(outcomes) else 1


def _go_on(console: Console) -> int:
    console.print("the time is up: the same command goes on")
    return 3


if __name__ == "__main__":
    sys.exit(main())
