"""Compiled models beside a busy process: `python -m benchmarks.beside_neighbour MODEL.onnx COMPILED.so [MORE.so ...]`.

OpenVINO by its own API and the compiled models take turns as in a contest of `collage tune`: each in a process, and a
session, of its own. The table has what each model takes over OpenVINO, beside a process that spins and without it: the
median of the rounds' ratios, of several series. Where the kernel puts the threads of a process lasts, so that series
differ by more than rounds of one do.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
import onnxruntime

from benchmarks.small_networks import neighbour
from benchmarks.workloads import random_inputs
from collage.arrays import write_arrays
from collage.deployed.entry import Entry
from collage.deployed.messages import COMPILED, Load
from collage.deployed.protocol import EndToEnd

_RIVAL = "openvino"


def ratios(entries: Mapping[str, Entry], rounds: int, rng: random.Random) -> dict[str, float]:
    """Name of a model -> the median over the rounds of its latency over the rival's."""
    protocol, found = EndToEnd(), []
    for _ in range(rounds):
        turns = {n: entries[n].turn(protocol, float("inf")) for n in rng.sample(list(entries), len(entries))}
        found.append({name: statistics.median(turn) for name, turn in turns.items()})
    return {name: statistics.median(each[name] / each[_RIVAL] for each in found) for name in entries if name != _RIVAL}


def series_of(
    model: Path, compiled: Sequence[Path], busy: bool, rounds: int, count: int, rng: random.Random
) -> list[dict[str, float]]:
    """So many series of rounds, each with fresh processes."""
    values = random_inputs(onnx.load(str(model)), 0)
    session = onnxruntime.InferenceSession(str(model))
    outputs = session.run(None, values)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        inputs = write_arrays([values[each.name] for each in session.get_inputs()], Path(folder), "input")
        expected = write_arrays(outputs, Path(folder), "expected")
        files = {_RIVAL: (_RIVAL, model), **{path.name: (COMPILED, path) for path in compiled}}
        for _ in range(count):
            entries = {
                name: Entry(Load(kind, str(path), inputs, len(os.sched_getaffinity(0)), "cpu"), expected, 1e-2)
                for name, (kind, path) in files.items()
            }
            try:
                with neighbour(busy):
                    for name, entry in entries.items():
                        if not entry.ready(float("inf")):
                            raise SystemExit(f"{name}: {entry.problem}")
                    found.append(ratios(entries, rounds, rng))
            finally:
                for entry in entries.values():
                    entry.park()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="the user's ONNX file")
    parser.add_argument("compiled", type=Path, nargs="+", help="models compiled by Collage, of different names")
    parser.add_argument("--rounds", type=int, default=60, help="of each series")
    parser.add_argument("--series", type=int, default=4)
    options = parser.parse_args()
    rng = random.Random(0)
    for busy in (True, False):
        found = series_of(options.model, options.compiled, busy, options.rounds, options.series, rng)
        for name in found[0]:
            told = ", ".join(f"{each[name]:.2f}" for each in found)
            print(f"{'beside a busy process' if busy else 'alone'}, {name} over {_RIVAL}: {told}")


if __name__ == "__main__":
    main()
