"""What is measured on a device, in which order, and how each step is run.

Rows come in the order of what they show: one network of products and one of convolutions in the precision of
deployment, the same two in float32, then the paper's other networks, then batches. Every tune is followed by its race,
the strongest peers first; where it was stopped, by the best plan of what it had measured. Evolution comes after all
rows.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.gpu.contestant import Load
from benchmarks.gpu.isolated import Isolated
from benchmarks.gpu.ledger import Ledger, OutOfTime, Step
from benchmarks.gpu.race import race
from benchmarks.gpu.tune import compile_again, recorded, tune

#: Network, type and batch, the most important first.
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
    ("bert_base", "bfloat16", 1),
    ("resnet50", "bfloat16", 1),
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
#: The best plan of the records that there are, where a tune was stopped.
RESCUE = "measured"
#: Of a race's time, what one contestant may take to load.
_LOADING = 0.5
#: Seconds of evolution.
_EVOLUTION_S = 90.0
#: Seconds without which no race is worth starting: its reference and imports come before its first turn. A peer that
#: does not load in time is left out: PyTorch with a CUDA graph takes 3 s, compiled 28, with its autotuner 67 (BERT).
_RACE_S = 60.0


def steps(rows: Sequence[tuple[str, str, int]], peers: Sequence[str], evolutionary: bool = True) -> list[Step]:
    """Every row tuned by Dijkstra and raced with peers; then tuned by evolution, and that is raced."""
    made = []
    tuned, rescued = ("tune", "dijkstra"), ("tune", RESCUE)
    for row in rows:
        made.append(Step("tune", *row, "dijkstra", least_s=60.0, most_s=300.0, resumable=True))
        made.append(Step("tune", *row, RESCUE, unless=(tuned,), least_s=20.0, most_s=90.0))
        race_s = 420.0 if len(peers) > 2 else 240.0
        made.append(Step("race", *row, "peers", (tuned, rescued), (), (OURS, *peers), _RACE_S, race_s))
    for row in rows if evolutionary else ():
        least, needs = _EVOLUTION_S + 60.0, (("tune", "evolutionary"),)
        made.append(Step("tune", *row, "evolutionary", (tuned,), least_s=least, most_s=300.0, resumable=True))
        made.append(Step("race", *row, "searchers", needs, (), (OURS, "evolutionary"), _RACE_S, 240.0))
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
        """Contender -> result; `benchmarks.gpu.ledger.run` calls it."""
        deadline = time.monotonic() + limit_s
        try:
            return self._tune(step, deadline) if step.kind == "tune" else self._race(step, deadline)
        except OutOfTime as late:
            return {contender: {"status": "timeout", "reason": str(late)} for contender in step.contenders}
        except (RuntimeError, OSError) as error:
            return {contender: {"status": "failed", "reason": str(error)[-500:]} for contender in step.contenders}

    def _tune(self, step: Step, deadline: float) -> Mapping[str, Mapping[str, Any]]:
        search_s, searcher = None, "dijkstra" if step.variant == RESCUE else step.variant
        if step.variant == "evolutionary":
            search_s = min(_EVOLUTION_S, 0.6 * (deadline - time.monotonic()))
        network = (step.network, step.dtype, step.batch)
        before, library = recorded(self.records), self.library(step)
        options = (self.device, self.backends, searcher, search_s, self.records, library, step.variant == RESCUE)
        with closing(Isolated(tune, *network, *options, log=library.with_suffix(".log"))) as process:
            try:
                return {"": {"status": "ok", **process.receive(deadline)}}
            except TimeoutError:
                status, reason = "timeout", "stopped at its limit; what it measured is in the records"
            except RuntimeError as error:
                status, reason = "failed", str(error)
        return {"": {"status": status, "reason": reason, "new_records": recorded(self.records) - before}}

    def _race(self, step: Step, deadline: float) -> Mapping[str, Mapping[str, Any]]:
        """The contenders that are left and our model; ratios are to our model, also where it has its row already."""
        whole = self.ledger.get(Step("tune", step.network, step.dtype, step.batch, "dijkstra"))
        ours = "dijkstra" if whole is not None and whole["status"] == "ok" else RESCUE
        of = {OURS: ours, "evolutionary": "evolutionary"}
        facts: dict[str, Any] = {"network": step.network, "dtype": step.dtype, "batch": step.batch}
        loads = []
        for name in dict.fromkeys((OURS, *step.contenders)):
            library = self._compiled(step, of[name], deadline) if name in of else ""
            loads.append(Load(name, **facts, library=library, device=self.device, precision=self.precision))
        end = deadline - _WRITING_S
        results = race(loads, end, self.state / "race.log", _LOADING * (end - time.monotonic()))
        base = results[OURS]
        if base.status == "skipped":
            raise OutOfTime(base.reason)  # without it there are no ratios
        return {name: results[name].row(base) for name in step.contenders}

    def _compiled(self, step: Step, searcher: str, deadline: float) -> str:
        """The compiled model of a tuned row; compiled again from its plan where the file is gone."""
        tuned = Step("tune", step.network, step.dtype, step.batch, searcher)
        library = self.library(tuned)
        if not library.exists():
            row = self.ledger.get(tuned)
            assert row is not None  # `Ledger.ready`
            arguments = (step.network, step.dtype, step.batch, row["plan"], library)
            with closing(Isolated(compile_again, *arguments, log=library.with_suffix(".log"))) as process:
                try:
                    process.receive(deadline)
                except TimeoutError:
                    raise OutOfTime(f"the plan of {tuned.name} was not compiled in time") from None
                except RuntimeError as error:
                    raise RuntimeError(f"the plan of {tuned.name} does not compile: {error}") from error
        return str(library)

    def library(self, step: Step) -> Path:
        """Where a tuned row's compiled model is."""
        folder = self.state / "models"
        folder.mkdir(exist_ok=True)
        return folder / f"{step.network}-{step.dtype}-{step.batch}-{step.variant}.so"

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
