"""Additivity of costs: partitions alone against the whole, all interleaved: `python -m benchmarks.additivity`.

The costs in the records were taken one after the other, over minutes in which the machine drifts; compared with a later
end-to-end latency, that drift is part of the error. Here the runs of a searched plan and of each of its partitions
alone (timed cold, as candidates are) are interleaved, so that a disturbance slows all of them. The table shows the
whole over the sum of the parts, less 1, with the 95% interval of its median over the rounds; the same with parts before
which all caches are emptied, whatever the network's working set; and the same for the costs as they are in the records.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import collage.runtime
from benchmarks.workloads import build
from collage.api.partitioner import partition
from collage.cost.estimator import Workload
from collage.graph.candidates import HOST
from collage.graph.from_relax import read_graph
from collage.graph.working_set import working_set
from collage.measure.artifact import Artifact, prepare
from collage.measure.builder import build_all
from collage.measure.probe import WARM_UP, build_probes, self_contained
from collage.measure.protocol import candidate_protocol
from collage.measure.reference import ReferenceRun
from collage.measure.statistics import paired_ratio
from collage.measure.workloads import WorkloadFactory
from collage.runtime.device_info import describe_device
from collage.runtime.threads import configure_threads, default_threads, thread_environment


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure each network in a process of its own, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["resnet50", "mobilenet_v2", "bert_base"])
    parser.add_argument("--records", type=Path, default=Path("build/bench-records.db"))
    parser.add_argument("--turns", type=int, default=41)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        print(json.dumps(measure(options.names[0], options.records, options.turns)))
        return
    table = Table("network", "partitions", "whole / parts here - 1", "caches emptied", "whole / recorded costs - 1")
    for name in options.names:
        command = [sys.executable, "-m", "benchmarks.additivity", name, "--worker"]
        command += ["--records", str(options.records), "--turns", str(options.turns)]
        environment = {**os.environ, **thread_environment(default_threads())}
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
        row = json.loads(printed.splitlines()[-1])
        ratios = (_told(row[how]) for how in ("network", "emptied"))
        table.add_row(name, str(row["partitions"]), *ratios, f"{row['recorded'] - 1:+.1%}")
    Console(width=120).print(table)


def _told(ratio: Sequence[float]) -> str:
    middle, low, high = (x - 1 for x in ratio)
    return f"{middle:+.1%} ({low:+.1%} to {high:+.1%})"


def measure(name: str, records: Path, turns: int) -> dict[str, Any]:
    """Ratios of the whole to the sum of its parts, (median, low, high), for the plan searched with isolated costs."""
    from collage.measure.clock import clock_of
    from collage.measure.loaded import LoadedArtifact, WarmUps  # after the environment is set: it loads TVM's runtime

    threads = default_threads()
    configure_threads(threads)
    with tempfile.TemporaryDirectory(prefix="collage-additivity-") as temporary:
        folder = Path(temporary)
        plan = partition(build(name), records=records, threads=threads, effort="thorough", confirm_end_to_end=False)
        backends = list(plan.backends.values())
        graph = read_graph(plan.module)
        reference = ReferenceRun(plan.module, graph, threads)
        factory = WorkloadFactory(plan.module, graph, plan.backends, threads, reference.values)
        chosen = [candidate for candidate in plan.placement(graph) if candidate.backend != HOST]
        workloads = [factory.of(candidate) for candidate in chosen]
        distinct = list(dict.fromkeys(workloads))
        built = build_all([prepare(w, folder / str(i)) for i, w in enumerate(distinct)], threads, 120.0)
        probes = build_probes(backends, threads, folder / "probes", threads, 120.0)
        warm_ups = {
            backend.name: self_contained([probe], folder / "probes")[0]
            for backend in backends
            if isinstance(probe := probes[backend.name, WARM_UP], Artifact)
        }
        loaded: dict[Workload, LoadedArtifact] = {}
        awake = WarmUps()
        for workload, artifact in zip(distinct, built, strict=True):
            assert isinstance(artifact, Artifact), artifact
            warm_up = warm_ups[workload.backend.name]
            assert workload.samples is not None
            inputs = _tensors(workload.samples().inputs)
            loaded[workload] = LoadedArtifact(artifact, inputs, awake.of(replace(artifact, warm_up=warm_up)))
        plan.compile().export(folder / "plan.so")
        whole = collage.runtime.load(folder / "plan.so").bind(_tensors(reference.inputs))
        here = describe_device()
        protocols = {
            "network": candidate_protocol(here, working_set(graph)),
            "emptied": candidate_protocol(here),
        }
        together: list[float] = []
        alone: dict[str, list[float]] = {how: [] for how in protocols}
        for _ in range(turns):
            for _ in range(2):  # they find what was run in between in the caches
                whole()
            together.append(clock_of("cpu").time_call(whole))
            for how, protocol in protocols.items():
                # Twice, because far more was run since the last time than a call of the network.
                both = {w: [run.time_once(protocol, threads) for _ in range(2)] for w, run in loaded.items()}
                once = {w: second for w, (_, second) in both.items()}
                alone[how].append(sum(once[w] for w in workloads))
    return {
        "partitions": len(chosen),
        **{how: paired_ratio(together, sums) for how, sums in alone.items()},
        "recorded": float(np.median(together)) / plan.searched_cost.seconds,
    }


def _tensors(arrays: Sequence[np.ndarray]) -> list[Any]:
    import tvm

    return [tvm.runtime.tensor(array) for array in arrays]


if __name__ == "__main__":
    main()
