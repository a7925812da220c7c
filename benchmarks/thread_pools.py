"""Cost of two backends with a thread pool each, called in alternation: `python -m benchmarks.thread_pools`.

One convolution on each of two backends, of about a millisecond and of several (`--channels`): each alone, repeatedly,
and both interleaved (A B A B). The ratio of the interleaved time to the sum of the times alone is 1 when the pools do
not disturb each other. A pool whose workers poll for the next task after the last one holds processors that the other
pool needs. The three measurements alternate, so that other load affects them equally; the table shows the median ratio
and its 95% confidence interval. Interleaving also costs cache: two convolutions hold twice the data. The row of a
backend with a second convolution of its own shows that share, and is the one to compare with.

TVM reads the environment when its pool starts, so that each setting (`--spin`, the number of polls) is measured in a
process of its own. `default` is what TVM does when nothing is set.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from collage.runtime.threads import default_threads

#: Calls per repetition and measurement.
CALLS = 5
#: The goal for the ratio.
GOAL = 1.05
_SPIN = "TVM_THREAD_POOL_SPIN_COUNT"

Ratio = tuple[float, float, float]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every pair of available backends under every setting, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--repeats", type=int, default=200, help="repetitions of the three measurements")
    parser.add_argument("--backends", nargs="+", help="names; default: all that are available")
    parser.add_argument("--channels", nargs="+", type=int, default=[64, 128], help="of the convolutions")
    parser.add_argument("--spin", nargs="+", default=["deployed"], metavar="COUNT", help="polls; default; deployed")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        print(json.dumps(measure(options.backends, options.threads, options.repeats, options.channels[0])))
        return
    titles = ("setting", "channels", "pair", "alone (ms)", "interleaved (ms)", "ratio", "95% interval", f"<= {GOAL}")
    table = Table(*titles)
    for setting, channels in product(options.spin, options.channels):
        for pair, row in _in_own_process(options, setting, channels).items():
            ratio, low, high = row["ratio"]
            alone = " + ".join(f"{seconds * 1e3:.3f}" for seconds in row["alone"])
            fine = "yes" if high <= GOAL else "no" if low > GOAL else "open"
            turns = f"{row['turns'] * 1e3:.3f}"
            table.add_row(setting, str(channels), pair, alone, turns, f"{ratio:.3f}", f"{low:.3f} to {high:.3f}", fine)
    Console(width=120).print(table)


def measure(backends: Sequence[str] | None, threads: int, repeats: int, channels: int) -> dict[str, dict[str, Any]]:
    """Pair -> median seconds of each alone and of both interleaved, and the ratio with its interval."""
    from collage.measure.statistics import paired_ratio

    names = backends or available()
    firsts = {name: convolution(name, threads, channels, seed=0) for name in names}
    seconds = {name: convolution(name, threads, channels, seed=1) for name in names}
    result: dict[str, dict[str, Any]] = {}
    for first, second in combinations_with_replacement(names, 2):
        a, b = firsts[first], seconds[second]
        alone_a, alone_b, turns = [], [], []
        for _ in range(repeats):
            alone_a.append(_seconds([a]))
            alone_b.append(_seconds([b]))
            turns.append(_seconds([a, b]))
        sums = [x + y for x, y in zip(alone_a, alone_b, strict=True)]
        result[f"{first}, {second}"] = {
            "alone": [float(np.median(alone_a)), float(np.median(alone_b))],
            "turns": float(np.median(turns)),
            "ratio": paired_ratio(turns, sums),
        }
    return result


def available() -> list[str]:
    """The backends that can be used here."""
    from collage import plugins

    return [n for n in plugins.names("backends") if plugins.load("backends", n).availability().available]


def convolution(name: str, threads: int, channels: int, seed: int) -> Callable[[], Any]:
    """A 3x3 convolution of a 56x56 image on a backend, compiled as Collage ships it."""
    import tvm
    from tvm import relax

    from collage import plugins
    from collage.compile.build import build
    from collage.compile.rewrite import apply
    from collage.graph.candidates import CandidatePartition
    from collage.graph.from_relax import read_graph
    from collage.graph.sub_graph import SubGraph

    rng = np.random.default_rng(seed)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, channels, 56, 56), "float32"))
    weight = relax.const(rng.standard_normal((channels, channels, 3, 3), dtype=np.float32) * 0.04)
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.nn.conv2d(x, weight, padding=(1, 1)))
        builder.emit_func_output(out)
    module = relax.transform.CanonicalizeBindings()(builder.get())
    graph = read_graph(module)
    backend = plugins.load("backends", name)
    whole = CandidatePartition(SubGraph(graph, graph.coverable), name)
    model = build(apply(module, graph, [whole], {name: backend}), [backend], threads).load()
    image = tvm.runtime.tensor(rng.standard_normal((1, channels, 56, 56), dtype=np.float32))
    model.run([image])
    return lambda: model.run([image])


def _seconds(calls: Sequence[Callable[[], Any]]) -> float:
    """Mean seconds of one round of calls."""
    for call in calls:
        call()
    begin = time.perf_counter()
    for _ in range(CALLS):
        for call in calls:
            call()
    return (time.perf_counter() - begin) / CALLS


def _in_own_process(options: argparse.Namespace, setting: str, channels: int) -> dict[str, dict[str, Any]]:
    environment = dict(os.environ)
    environment.pop(_SPIN, None)
    if setting == "default":
        environment[_SPIN] = "300000"
    elif setting != "deployed":
        environment[_SPIN] = setting
    command = [sys.executable, "-m", "benchmarks.thread_pools", "--worker", "--threads", str(options.threads)]
    command += ["--repeats", str(options.repeats), "--channels", str(channels)]
    command += ["--backends", *options.backends] if options.backends else []
    output = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, dict[str, Any]] = json.loads(output.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
