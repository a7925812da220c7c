"""A snapshot of what Collage decides, to hold a refactoring against: `python -m benchmarks.snapshot -o BEFORE.json`,
then, after the change, `-o AFTER.json --against BEFORE.json`, which exits with status 1 where something differs.

Everything comes from the committed records of both machines; nothing is measured. For each network: its candidates on
every backend, their structures, their recorded costs, the plans that Dijkstra's and the beam search find with these,
and what is built of a sample of the candidates (kernels before code generation, blobs of engines). For each machine:
the training rows, their features, and what the shipped model predicts.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tvm

import collage
from benchmarks.estimators.networks import Network
from benchmarks.workloads import NAMES, build
from collage.backends.base import Backend
from collage.compile.lowering import lowering_of
from collage.cost.estimator import Workload
from collage.errors import CollageError
from collage.graph.from_relax import read_graph
from collage.measure.artifact import prepare
from collage.plugins import load as plugin
from collage.records import Record, read_log
from collage.rules.base import PartitionSpec
from estimators.cost_model.data.training_set import training_set
from estimators.cost_model.model import CostModel
from estimators.features.batch import Roofline, Task, features_of
from estimators.replay import ReplayEstimator

_RECORDS = Path(__file__).parent / "records"
_MACHINES = ("xeon", "epyc")
_LOGS = ("", "-again", "-third", "-fourth", "-fifth", "-designed", "-denser", "-blocks", "-operators")
_NETWORK_LOGS = _LOGS[:5]
_CPU = ("tvm", "openvino", "onnxruntime", "onednn", "winograd")
_CUDA = ("tvm-cuda", "cublas", "cudnn", "cutlass", "tensorrt", "onnxruntime-cuda")
_THREADS = 2
#: How many different candidates of each backend and network are built.
_BUILT = 6


def digest(value: Any) -> str:
    """Of anything JSON-ready; numbers with nine digits."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=_plain).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [format(float(x), ".9g") for x in value.ravel()]
    return str(value)


def logs(machine: str, kinds: Iterable[str] = _LOGS) -> list[Path]:
    """The committed logs of a machine that there are."""
    paths = [_RECORDS / f"{machine}-2-threads{kind}.jsonl.gz" for kind in kinds]
    return [path for path in paths if path.exists()]


def of_network(name: str) -> dict[str, Any]:
    """What is decided for one network."""
    backends: dict[str, Backend] = {b: plugin("backends", b) for b in _CPU}
    network = Network(name, backends, _THREADS)
    described = [
        (c.backend, str(c.sub_graph.inside), [(label, str(nodes)) for label, nodes in c.composites])
        for c in network.candidates
    ]
    structures = [(w.backend.name, w.structure, w.composites) for w in network.workloads.values()]
    found: dict[str, Any] = {"candidates": [len(described), digest(described)], "structures": digest(structures)}
    for machine in _MACHINES:
        replay = ReplayEstimator(logs(machine, _NETWORK_LOGS))
        workloads = list(network.workloads.values())
        costs = replay.estimate(workloads)
        known = [(w.structure, c.seconds) for w, c in zip(workloads, costs, strict=True) if c.is_finite]
        found[f"costs, {machine}"] = [len(known), digest(known)]
        some = [b for b in _CPU if machine == "epyc" or b not in ("onednn", "winograd")]
        for searcher in ("dijkstra", "beam"):
            plan = collage.partition(
                network.module, some, searcher, replay, threads=_THREADS, records=":memory:", confirm_end_to_end=False
            )
            chosen = [(p.backend, p.nodes, p.operators, p.composites, p.cost.seconds) for p in plan.partitions]
            numbers = [plan.choice, plan.searched_cost.seconds, plan.lower_bound]
            found[f"plan, {searcher}, {machine}"] = [len(chosen), plan.choice, digest([chosen, numbers])]
    found["built"] = {b: built(w for w in network.workloads.values() if w.backend.name == b) for b in _CPU}
    found["cuda"] = on_cuda(name)
    return found


def built(workloads: Iterable[Workload]) -> list[Any]:
    """A digest of what a sample of the workloads is compiled to."""
    chosen = sorted({digest([w.structure, w.composites]): w for w in workloads}.items())[:_BUILT]
    return [len(chosen), digest([(key, product(w)) for key, w in chosen])]


def product(workload: Workload) -> str:
    """What is built of one workload: its blobs and the module around them, or its kernel before code generation."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            made = prepare(workload, Path(folder))
            module = tvm.ir.load_json(made.module_json)
            blobs = [hashlib.sha256(Path(b.path).read_bytes()).hexdigest() for b in made.artifact.blobs]
            about = [(b.engine, dict(b.options)) for b in made.artifact.blobs]
            if workload.backend.style == "native":
                with (lowering := lowering_of(workload.backend.device, workload.threads, [workload.backend])).scope():
                    module = lowering.lower(module, True, False)
            return digest([module.script(), blobs, about])
        except CollageError as error:
            return f"{type(error).__name__}: {error}"


def on_cuda(name: str) -> dict[str, Any]:
    """The candidates on CUDA, in half precision, and what the engines are told of a sample."""
    module = collage.load(build(name, dtype="float16"), device="cuda")
    graph = read_graph(module)
    found = {}
    for backend_name in _CUDA:
        settings = {"arch": "sm_90"} if backend_name in ("tvm-cuda", "cutlass") else {}
        rule = plugin("backends", backend_name, **settings).partition_rule
        candidates = rule.all_candidates(graph, PartitionSpec(rule, backend_name))
        described = [(str(c.sub_graph.inside), [(la, str(n)) for la, n in c.composites]) for c in candidates]
        found[backend_name] = [len(described), digest(described)]
    return found


def of_machine(machine: str) -> dict[str, Any]:
    """What is learned from a machine's records."""
    networks = [r for path in logs(machine, _NETWORK_LOGS) for r in read_log(path)]
    designed = [r for path in logs(machine, _LOGS[5:]) for r in read_log(path)]
    data = training_set([*networks, *designed], designed=[False] * len(networks) + [True] * len(designed))
    roofline = Roofline.of(data.records[-1].device)
    table = features_of([_task(r) for r in data.records[::7]], roofline)
    model = CostModel.load(Path(__file__).parent.parent / "estimators" / "data" / f"{machine}.json.gz")
    predicted = model.predict_interval(data.records[::29])
    return {
        "rows": [len(data.records), data.fingerprint, data.ignored],
        "targets": digest([data.log_seconds, data.weights, data.groups, data.designed]),
        "features": digest([table.work, table.totals, table.roofline, table.kernels.toarray().sum(axis=0)]),
        "kernel features": digest([table.kernel_details, table.kernel_work]),
        "predictions": digest([[f"{float(x):.6g}" for x in side] for side in predicted]),
    }


def _task(record: Record) -> Task:
    key = record.key
    return Task(key.structure, record.description or {}, key.composites, key.threads)


def differences(before: Any, after: Any, where: str = "") -> list[str]:
    """Where two snapshots differ, one line each."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return [
            line
            for key in sorted({*before, *after})
            for line in differences(before.get(key), after.get(key), f"{where}/{key}")
        ]
    return [] if before == after else [f"{where}: {before} -> {after}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(NAMES))
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--machines", nargs="*", default=list(_MACHINES))
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    for machine in arguments.machines:
        print(machine, file=sys.stderr, flush=True)
        found[machine] = of_machine(machine)
    for name in arguments.names:
        print(name, file=sys.stderr, flush=True)
        found[name] = of_network(name)
    arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    if arguments.against:
        lines = differences(
            {k: v for k, v in json.loads(arguments.against.read_text()).items() if k in found},
            json.loads(json.dumps(found)),
        )
        print("\n".join(lines) or f"nothing differs: {', '.join(found)}")
        sys.exit(bool(lines))


if __name__ == "__main__":
    main()
