"""What recurrent layers take of the trained networks: `python -m benchmarks.wild.recurrent [NAME ...]`.

TVM has no LSTM, GRU or RNN in Relax, so OpenVINO and ONNX Runtime run them. What kernels of TVM's own could gain is at
most what these operators take: ONNX Runtime's profile of whole runs says their share of the time in all operators. The
bound beside it is the time that two threads take to multiply the layer's matrices at the speed of one large product
(NumPy's), which no kernel undercuts: the steps of a sequence depend on each other and are products with one row.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from rich.console import Console
from rich.table import Table

from benchmarks.wild.models import MODELS, WildModel

#: Operators, and how many gates each has.
GATES = {"LSTM": 4, "DynamicQuantizeLSTM": 4, "GRU": 3, "RNN": 1}
_RUNS = 30


def recurrent_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Those of a graph and of all graphs inside it."""
    for node in graph.node:
        if node.op_type in GATES:
            yield node
        for attribute in node.attribute:
            yield from recurrent_nodes(attribute.g)


def profile(model: WildModel, threads: int) -> list[dict[str, Any]]:
    """ONNX Runtime's events of the operators of `_RUNS` calls."""
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = onnxruntime.InferenceSession(model.wheel.read(model.file), options, ["CPUExecutionProvider"])
        made = {name: sample(model.wheel) for name, sample in model.inputs.items()}
        inputs = {value.name: made[value.name] for value in session.get_inputs() if value.name in made}
        for _ in range(_RUNS):
            session.run(None, inputs)
        events = json.loads(Path(session.end_profiling()).read_text())
    return [event for event in events if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")]


def share(events: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Seconds of the recurrent operators in one call, and of all of them. What contains others is not counted twice."""
    inside = [event for event in events if event["args"].get("op_name") not in ("If", "Loop", "Scan")]
    recurrent = sum(event["dur"] for event in inside if event["args"].get("op_name") in GATES)
    return recurrent / 1e6 / _RUNS, sum(event["dur"] for event in inside) / 1e6 / _RUNS


def products(events: Sequence[dict[str, Any]]) -> float:
    """Floating-point operations of the recurrent operators in one call: of the products with W and R."""
    found = 0
    for event in events:
        name = event["args"].get("op_name")
        if name in GATES:
            steps, batch, width = next(iter(event["args"]["input_type_shape"][0].values()))
            *_, directions, _, hidden = next(iter(event["args"]["output_type_shape"][0].values()))
            found += 2 * steps * batch * directions * GATES[name] * hidden * (width + hidden)
    return found / _RUNS


def peak() -> float:
    """Operations a second of a large product in float32."""
    a = np.ones((1024, 1024), np.float32)
    seconds = []
    for _ in range(9):
        begin = time.perf_counter()
        a @ a
        seconds.append(time.perf_counter() - begin)
    return float(2 * 1024**3 / statistics.median(seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="by default all that have such layers")
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    onnxruntime.set_default_logger_severity(3)  # errors only
    speed = peak()
    table = Table("network", "recurrent layers, ms", "all operators, ms", "share", "bound, ms")
    for model in MODELS:
        if asked.names and model.name not in asked.names:
            continue
        if not any(recurrent_nodes(onnx.load_from_string(model.wheel.read(model.file)).graph)):
            continue
        events = profile(model, asked.threads)
        layers, whole = share(events)
        bound = products(events) / speed
        cells = (f"{layers * 1e3:.3f}", f"{whole * 1e3:.3f}", f"{layers / whole:.0%}", f"{bound * 1e3:.3f}")
        table.add_row(model.name, *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
