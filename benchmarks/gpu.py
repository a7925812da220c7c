"""All that is measured on a GPU, in one command that can be stopped and goes on where it was.

    python -m benchmarks.gpu --state STATE --budget 570 --out OUT      # again, and again, until it says "complete"

For every network, type and batch: Collage tunes over all CUDA backends and confirms its plan against every backend
alone and against TVM's own build; the shipped model then races PyTorch (`benchmarks.gpu_peers`), all in processes of
their own, checked against float64. STATE holds the rows (`rows.jsonl`), the records of single candidates (`records.db`)
and compiled models; after every step the first two are copied to OUT, with the records as a benchmark log. On another
machine `--resume` takes up rows and records from such a folder; compiled models are made again from their plans.

Rows come in the order in which they tell most: one network of products and one of convolutions in the precision of
deployment, the same two in float32, then the paper's other networks, then batches. What takes long and tells less comes
after all rows: the peer that searches over kernels, and evolution.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu_ledger import Budget, Ledger, OutOfTime, Step, run
from benchmarks.gpu_messages import Load
from benchmarks.gpu_peers import ON_CPU, PEERS, TUNED
from benchmarks.gpu_race import race
from collage.measure.helper import command

#: Network, type and batch, the most telling first.
ROWS: tuple[tuple[str, str, int], ...] = (
    ("bert_base", "float16", 1),
    ("resnet50", "float16", 1),
    ("resnet50", "float32", 1),
    ("bert_base", "float32", 1),
    ("dcgan", "float32", 1),
    ("resnext50_32x4d", "float32", 1),
    ("nasnet_a_mobile", "float32", 1),
    ("resnet50_3d", "float32", 1),
    ("resnext50_32x4d", "float16", 1),
    ("dcgan", "float16", 1),
    ("nasnet_a_mobile", "float16", 1),
    ("resnet50_3d", "float16", 1),
    ("bert_base", "float16", 16),
    ("resnet50", "float16", 16),
    ("resnet50", "float32", 16),
)
#: Ours in a race with peers, and in one of searchers.
OURS = "collage"
FILES = ("rows.jsonl", "records.db")
LOG = "records.jsonl.gz"
#: Seconds that the last round of a race may take beyond its end.
_WRITING_S = 10.0
#: Seconds of evolution.
_EVOLUTION_S = 90.0
#: Seconds without which no race is worth starting: its reference, imports and compilers come before its first turn.
_RACE_S = 150.0


def steps(rows: Sequence[tuple[str, str, int]], peers: Sequence[str], evolutionary: bool = True) -> list[Step]:
    """Every row tuned by Dijkstra and raced with peers; then all raced with peers that search themselves; then all by
    evolution, raced with Dijkstra's.
    """
    made = []
    needs: tuple[tuple[str, str], ...] = (("tune", "dijkstra"),)
    quick, slow = [p for p in peers if p not in TUNED], [p for p in peers if p in TUNED]
    for row in rows:
        made.append(Step("tune", *row, "dijkstra", least_s=60.0, most_s=300.0, resumable=True))
        made.append(Step("race", *row, "peers", needs, (OURS, *quick), _RACE_S, 420.0))
    for row in rows if slow else ():
        made.append(Step("race", *row, "searching peers", needs, (OURS, *slow), _RACE_S, 420.0))
    for row in rows if evolutionary else ():
        least, both = _EVOLUTION_S + 60.0, (*needs, ("tune", "evolutionary"))
        made.append(Step("tune", *row, "evolutionary", needs, least_s=least, most_s=300.0, resumable=True))
        made.append(Step("race", *row, "searchers", both, (OURS, "evolutionary"), _RACE_S, 240.0))
    return made


class Session:
    """Runs steps on a device, with their files in a folder."""

    def __init__(self, state: Path, device: str, precision: str, backends: Sequence[str] | None = None) -> None:
        self.state = state
        self.device = device
        self.precision = precision
        self.backends = backends
        self.ledger = Ledger(state / FILES[0])
        self.records = state / FILES[1]
        # What compilers keep is kept with the rest, so that a race that was cut short is quicker the next time.
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(state / "inductor"))

    def take(self, step: Step, limit_s: float) -> Mapping[str, Mapping[str, Any]]:
        """Contender -> result; `benchmarks.gpu_ledger.run` calls it."""
        deadline = time.monotonic() + limit_s
        try:
            return self._tune(step, deadline) if step.kind == "tune" else self._race(step, deadline)
        except OutOfTime as late:
            return {contender: {"status": "timeout", "reason": str(late)} for contender in step.contenders}
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            return {contender: {"status": "failed", "reason": str(error)[-500:]} for contender in step.contenders}

    def _tune(self, step: Step, deadline: float) -> Mapping[str, Mapping[str, Any]]:
        out = self.library(step).with_suffix(".json")
        options = ["--searcher", step.variant, "--out", str(out)]
        if self.backends is not None:
            options += ["--backends", *self.backends]
        if step.variant == "evolutionary":
            options += ["--search-s", str(min(_EVOLUTION_S, 0.6 * (deadline - time.monotonic())))]
        before = self._recorded()
        status, reason = self._process(step, options, deadline)
        if status != "ok":
            return {"": {"status": status, "reason": reason, "new_records": self._recorded() - before}}
        return {"": {"status": "ok", **json.loads(out.read_text())}}

    def _recorded(self) -> int:
        """How many records there are."""
        if not self.records.exists():
            return 0
        from collage.records import RecordDatabase

        with RecordDatabase(self.records) as database:
            return len(database)

    def _race(self, step: Step, deadline: float) -> Mapping[str, Mapping[str, Any]]:
        """The contenders that are left against our model, which ratios are to, also where its own row stands."""
        of = {OURS: "dijkstra", "evolutionary": "evolutionary"}
        facts: dict[str, Any] = {"network": step.network, "dtype": step.dtype, "batch": step.batch}
        loads = []
        for name in dict.fromkeys((OURS, *step.contenders)):
            library = self._compiled(step, of[name], deadline) if name in of else ""
            loads.append(Load(name, **facts, library=library, device=self.device, precision=self.precision))
        with (self.state / "race.log").open("ab") as log:
            results = race(loads, deadline - _WRITING_S, log)
        base = results[OURS]
        if base.status == "skipped":
            raise OutOfTime(base.reason)  # without it there are no ratios
        return {name: results[name].row(base) for name in step.contenders}

    def _compiled(self, step: Step, searcher: str, deadline: float) -> str:
        """The compiled model of a tuned row; compiled again from its plan where the file is gone."""
        tuned = Step("tune", step.network, step.dtype, step.batch, searcher)
        library = self.library(tuned)
        if not library.exists():
            row = library.with_suffix(".json")
            row.write_text(json.dumps(self.ledger.get(tuned)))
            status, reason = self._process(tuned, ["--plan", str(row), "--out", str(row)], deadline)
            if status == "timeout":
                raise OutOfTime(f"the plan of {tuned.name} was not compiled in time")
            if status != "ok":
                raise RuntimeError(f"the plan of {tuned.name} does not compile: {reason}")
        return str(library)

    def library(self, step: Step) -> Path:
        """Where a tuned row's compiled model is."""
        folder = self.state / "models"
        folder.mkdir(exist_ok=True)
        return folder / f"{step.network}-{step.dtype}-{step.batch}-{step.variant}.so"

    def _process(self, step: Step, options: Sequence[str], deadline: float) -> tuple[str, str]:
        """`benchmarks.gpu_tune` in a process of its own: how it ended, and why."""
        what = (step.network, "--dtype", step.dtype, "--batch", str(step.batch), "--device", self.device)
        files = ("--records", str(self.records), "--library", str(self.library(step)))
        log = self.library(step).with_suffix(".log")
        with log.open("wb") as stream:
            tune = command("benchmarks.gpu_tune", *what, *files, *options)
            process = subprocess.Popen(tune, stdout=stream, stderr=stream, start_new_session=True)
            try:
                status = process.wait(max(1.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return "timeout", "stopped at its limit; what it measured is in the records"
        if status == 0:
            return "ok", ""
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        return "failed", f"status {status}: {lines[-1] if lines else 'it printed nothing'}"

    def copy(self, out: Path | None) -> None:
        """Rows and records, and the records as a benchmark log, to a folder."""
        if out is None or out == self.state:
            return
        out.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            if (self.state / name).exists():
                shutil.copyfile(self.state / name, out / name)
        if self.records.exists():
            from collage.records import RecordDatabase, export_log

            with RecordDatabase(self.records) as database:
                export_log(database, out / LOG)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--state", type=Path, required=True, help="folder of rows, records and compiled models")
    parser.add_argument("--out", type=Path, help="folder that rows and records are copied to after every step")
    parser.add_argument("--resume", type=Path, help="folder to take rows and records from when the state has none")
    parser.add_argument("--budget", type=float, default=540.0, help="seconds after which no step is running any more")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--precision", choices=("float32", "tf32"), default="float32", help="of the peers' products")
    parser.add_argument("--networks", nargs="*", help="only these; any workload when it is not in the plan")
    parser.add_argument("--dtypes", nargs="*", default=("float32", "float16"))
    parser.add_argument("--backends", nargs="*", help="only these; all that are available when left out")
    parser.add_argument("--peers", nargs="*", choices=PEERS, help="only these")
    parser.add_argument("--no-evolution", action="store_true", help="leave evolutionary searches out")
    asked = parser.parse_args()
    budget = Budget(asked.budget)
    asked.state.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        if asked.resume is not None and (asked.resume / name).exists() and not (asked.state / name).exists():
            shutil.copyfile(asked.resume / name, asked.state / name)
    rows = [row for row in ROWS if asked.networks is None or row[0] in asked.networks]
    rows += [(name, "float32", 1) for name in asked.networks or () if name not in {row[0] for row in ROWS}]
    rows = [row for row in rows if row[1] in asked.dtypes]
    here = [peer for peer in PEERS if asked.device == "cuda" or peer in ON_CPU]
    peers = [peer for peer in here if asked.peers is None or peer in asked.peers]
    session = Session(asked.state, asked.device, asked.precision, asked.backends)
    complete = run(
        steps(rows, peers, not asked.no_evolution),
        session.ledger,
        budget,
        session.take,
        lambda line: print(line, flush=True),
        lambda: session.copy(asked.out),
    )
    session.copy(asked.out)
    print("complete" if complete else f"out of time: {budget.left():.0f} s left; the same command goes on from here")


if __name__ == "__main__":
    main()
