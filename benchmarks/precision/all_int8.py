"""Everything in eight bits, by Collage's export and by NNCF: `python -m benchmarks.precision.all_int8 [NETWORK ...]`.

Nothing is searched. Both quantise the same file with the same samples, OpenVINO runs both by its own API, in turns: the
ratio says what either writes around products. With it come the errors on unseen samples, and how many layers of
OpenVINO's runtime model compute in which precision (`--layers` lists them all). On a busy machine `--cpu` counts the
processor time of a thread, which other processes change less. On a processor with AMX, `--unsigned` also runs
Collage's with data as uint8, as on others.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.precision import samples as made_samples
from benchmarks.precision.error import error_of
from benchmarks.precision.rivals import Nncf, by_nncf, has_nncf, made
from benchmarks.precision.samples import Sample
from benchmarks.referee.intervals import ratio_interval
from benchmarks.workloads import build
from collage.accuracy.calibration import calibrated
from collage.accuracy.levels import with_sums_between
from collage.accuracy.samples import read_samples
from collage.annotations.precision import INT8
from collage.backends.onnx.base import OnnxBackend
from collage.backends.onnx.openvino import OpenVINOBackend
from collage.compile.rewrite import partition_function
from collage.frontend import input_specs, load
from collage.graph.candidates import CandidatePartition
from collage.graph.from_relax import read_graph
from collage.graph.sub_graph import SubGraph
from collage.measure.reference import ReferenceRun

OURS, UNSIGNED, THEIRS = "collage", "collage, uint8", "nncf"
#: Layers that only hold or pass on.
_SILENT = frozenset(("Input", "Output", "Const"))


class Unsigned(OpenVINOBackend):
    """As on a processor without AMX."""

    int8_signed = False


def by_collage(model: Path, samples: Sequence[Sample], out: Path, threads: int, backend: OnnxBackend) -> None:
    """Write the network with all that can be in eight bits, as OpenVINO gets it from a plan."""
    module = load(model)
    graph = read_graph(module)
    reference = ReferenceRun(module, graph, threads)
    given = read_samples([dict(sample) for sample in samples], input_specs(module))
    graph = read_graph(calibrated(module, graph, (reference.on(sample) for sample in given)))
    inside = graph.coverable
    chosen = with_sums_between(graph, backend.int8_nodes(graph, inside))
    whole = CandidatePartition(SubGraph(graph, inside), backend.name, ((INT8, chosen),))
    out.write_bytes(backend.engine_blob(partition_function(graph, whole, backend, "main").function))


def compiled(path: Path, threads: int) -> Any:
    """OpenVINO's compiled model, as rivals are run: float32 where nothing is quantised."""
    import openvino as ov

    core = ov.Core()
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    return core.compile_model(core.read_model(path), "CPU", settings)


def layers(model: Any) -> Iterator[tuple[str, str, str]]:
    """Name, kind and runtime precision of each layer that does something."""
    for node in model.get_runtime_model().get_ordered_ops():
        facts = {name: value.astype(str) for name, value in node.get_rt_info().items()}
        if facts["layerType"] not in _SILENT:
            yield node.get_friendly_name(), facts["layerType"], facts["runtimePrecision"]


def runs(model: Any, samples: Sequence[Sample]) -> Callable[[int], list[np.ndarray]]:
    """What runs a sample; inputs go by position."""
    request = model.create_infer_request()
    arrays = [list(sample.values()) for sample in samples]

    def run(number: int) -> list[np.ndarray]:
        found = request.infer(arrays[number % len(arrays)])
        return [np.array(found[i]) for i in range(len(model.outputs))]

    return run


def in_turns(
    calls: Mapping[str, Callable[[int], Any]], rounds: int, seconds: float, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """The median seconds of a call in each round, after a round that warms up."""
    medians: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(-1, rounds):
        for name in sorted(calls, reverse=bool(number % 2)):
            took: list[float] = []
            end = time.perf_counter() + seconds
            while len(took) < 3 or time.perf_counter() < end:
                begin = clock()
                calls[name](len(took))
                took.append(clock() - begin)
            if number >= 0:
                medians[name].append(float(np.median(took)))
    return medians


def judge(network: str, options: argparse.Namespace) -> str:
    """Make both, race them, and say what was seen."""
    folder = options.work / network
    folder.mkdir(parents=True, exist_ok=True)
    proto = build(network)
    model, calibration = folder / f"{network}.onnx", folder / "calibration.npz"
    model.write_bytes(proto.SerializeToString(deterministic=True))
    given, unseen = (
        made_samples.samples_of(proto, options.samples, seed)
        for seed in (made_samples.CALIBRATION, made_samples.UNSEEN)
    )
    made_samples.save(given, calibration)
    files = {OURS: folder / "all-int8-collage.onnx"}
    by_collage(model, given, files[OURS], options.threads, OpenVINOBackend())
    if options.unsigned:
        files[UNSIGNED] = folder / "all-int8-unsigned.onnx"
        by_collage(model, given, files[UNSIGNED], options.threads, Unsigned())
    if not options.without_nncf:
        nncf = Nncf(options.nncf_python)
        files[THEIRS] = made(folder / "all-int8-nncf.xml", lambda path: by_nncf(model, calibration, path, nncf)).file
    plain = runs(compiled(model, options.threads), unseen)
    expected = [plain(i) for i in range(len(unseen))]
    models = {name: compiled(path, options.threads) for name, path in files.items()}
    calls = {name: runs(each, unseen) for name, each in models.items()}
    lines = [f"{network}:"]
    for name, each in models.items():
        error = error_of([calls[name](i) for i in range(len(unseen))], expected)
        listed = list(layers(each))
        counts = Counter(f"{kind} {precision}" for _, kind, precision in listed)
        said = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
        lines.append(f"  {name}: error {error.mean:.2%}; {said}")
        lines += [f"    {precision:5} {kind:20} {layer}" for layer, kind, precision in listed if options.layers]
    if options.rounds:
        clock = time.process_time if options.cpu else time.perf_counter
        medians = in_turns({**calls, "float32": plain}, options.rounds, options.seconds, clock)
        for name in medians:
            ratio = ratio_interval([medians[name]], [medians[OURS]])
            milliseconds = 1e3 * float(np.median(medians[name]))
            lines.append(f"  {name}: {milliseconds:.2f} ms, {ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f})")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", default=["resnet50"])
    parser.add_argument("--samples", type=int, default=8, help="that calibrate, and as many that judge")
    parser.add_argument("--rounds", type=int, default=20, help="0 only says what is computed in which precision")
    parser.add_argument("--seconds", type=float, default=0.5, help="of calls, for each of them in a round")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--cpu", action="store_true", help="processor time, with --threads 1")
    parser.add_argument("--layers", action="store_true", help="list all layers")
    parser.add_argument("--work", type=Path, default=Path("build/precision-work"), help="of what is made")
    parser.add_argument("--nncf-python", default=sys.executable, help="an interpreter that has NNCF")
    parser.add_argument("--unsigned", action="store_true", help="also with data as uint8")
    parser.add_argument("--without-nncf", action="store_true")
    options = parser.parse_args(arguments)
    if not options.without_nncf and not has_nncf(Nncf(options.nncf_python)):
        parser.error(f"{options.nncf_python} has no NNCF: pip install '.[bench]', or --nncf-python, or --without-nncf")
    for network in options.networks:
        print(judge(network, options), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
