"""All that is measured on a GPU, in one command that can be stopped and resumed.

    python -m benchmarks.gpu --state STATE --budget 570 --out OUT      # again, and again, until it says "complete"

For every network, type and batch: Collage tunes over all CUDA backends and confirms its plan against every backend
alone and against TVM's own build; the shipped model then races PyTorch (`benchmarks.gpu.peers`), all in processes of
their own, checked against float64. STATE holds the rows (`rows.jsonl`), the records of single candidates (`records.db`)
and compiled models; after every step the first two are copied to OUT, with the records as a benchmark log. On another
machine `--resume` takes up rows and records from such a folder; compiled models are made again from their plans.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from benchmarks.gpu.ledger import Budget, run
from benchmarks.gpu.peers import ON_CPU, PEERS
from benchmarks.gpu.session import FILES, RESCUE, ROWS, Session, steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--state", type=Path, required=True, help="folder of rows, records and compiled models")
    parser.add_argument("--out", type=Path, help="folder that rows and records are copied to after every step")
    parser.add_argument("--resume", type=Path, help="folder to take rows and records from when the state has none")
    parser.add_argument("--budget", type=float, default=540.0, help="seconds after which no step is running any more")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--precision", choices=("float32", "tf32"), default="float32", help="of the peers' products")
    parser.add_argument("--networks", nargs="*", help="only these; any workload when it is not in the plan")
    parser.add_argument("--batches", nargs="*", type=int, help="only these")
    parser.add_argument("--kinds", nargs="*", help="only these steps: tune, rescue, race")
    parser.add_argument("--dtypes", nargs="*", default=("float32", "float16", "bfloat16"))
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
    others = [name for name in asked.networks or () if name not in {row[0] for row in ROWS}]
    rows += [(name, dtype, 1) for name in others for dtype in asked.dtypes]
    rows = [row for row in rows if row[1] in asked.dtypes and (asked.batches is None or row[2] in asked.batches)]
    here = [peer for peer in PEERS if asked.device == "cuda" or peer in ON_CPU]
    peers = [peer for peer in here if asked.peers is None or peer in asked.peers]
    session = Session(asked.state, asked.device, asked.precision, asked.backends)
    wanted = steps(rows, peers, not asked.no_evolution)
    if asked.kinds is not None:
        wanted = [step for step in wanted if ("rescue" if step.variant == RESCUE else step.kind) in asked.kinds]
    complete = run(
        wanted,
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
