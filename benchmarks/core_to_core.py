"""Do distant cores explain a latency? `python -m benchmarks.core_to_core NETWORK [MORE ...] -o OUT.json`.

Rivals run a network by their own APIs, each in a process of its own, again and again for some time. Before and after
each look at them the latency between the first two processors is measured. The table has median latencies of looks on
near cores, on distant ones, and of those during which that changed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from benchmarks.referee.origin import origin
from benchmarks.referee.process import Contestant, Entry
from benchmarks.workloads import build, random_inputs
from collage.cost.disturbance import LIMITS
from collage.measure.core_to_core import round_trip

_RIVALS = ("openvino", "onnxruntime")
_TURN_S = 0.1
_PAUSE_S = 0.6


def look_at(network: str, seconds: float) -> list[dict[str, float]]:
    """For so long: seconds of a call of each rival, and of round trips before and after."""
    proto, looks = build(network), []
    first, second, *_ = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        model, inputs = Path(name) / f"{network}.onnx", Path(name) / "inputs.npz"
        model.write_bytes(proto.SerializeToString(deterministic=True))
        np.savez(inputs, **random_inputs(proto, 0))  # type: ignore[arg-type]
        rivals = [Contestant.start(Entry(kind, kind, model), inputs, 2) for kind in _RIVALS]
        for rival in rivals:
            stack.callback(rival.close)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            look = {"before": round_trip(first, second)}
            look |= {r.name: statistics.median(r.ask(time=_TURN_S, warm=_TURN_S / 2)["samples"]) for r in rivals}
            looks.append({**look, "after": round_trip(first, second)})
            time.sleep(_PAUSE_S)
    return looks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--seconds", type=float, default=100.0, help="of each network")
    parser.add_argument("-o", "--out", type=Path, required=True)
    options = parser.parse_args()
    found = {network: look_at(network, options.seconds) for network in options.networks}
    options.out.write_text(json.dumps({**origin(), "looks": found}) + "\n")
    least = min(look[when] for looks in found.values() for look in looks for when in ("before", "after"))
    for network, looks in found.items():
        states: dict[str, list[dict[str, float]]] = {"near": [], "distant": [], "changed": []}
        for look in looks:
            far = {look[when] > LIMITS["core_to_core"] * least for when in ("before", "after")}
            states["changed" if len(far) > 1 else "distant" if True in far else "near"].append(look)
        for state, some in states.items():
            medians = {name: statistics.median(look[name] for look in some) for name in some[0]} if some else {}
            told = ", ".join(f"{name} {1e6 * value:.3g}" for name, value in medians.items())
            print(f"{network}, {state}: {len(some)} looks; us: {told}")


if __name__ == "__main__":
    main()
