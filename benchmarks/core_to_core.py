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
import time
from pathlib import Path

from benchmarks.referee.engines import engines_on
from benchmarks.referee.origin import origin
from collage.cost.disturbance import LIMITS
from collage.measure.core_to_core import round_trip

_RIVALS = ("openvino", "onnxruntime")
_TURN_S = 0.1
_PAUSE_S = 0.6


def look_at(network: str, seconds: float) -> list[dict[str, float]]:
    """For so long: seconds of a call of each rival, and of round trips before and after."""
    looks = []
    first, second, *_ = sorted(os.sched_getaffinity(0))
    with engines_on(network, dict(zip(_RIVALS, _RIVALS, strict=True))) as rivals:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            look = {"before": round_trip(first, second)}
            turns = {name: rival.ask(time=_TURN_S, warm=_TURN_S / 2)["samples"] for name, rival in rivals.items()}
            look |= {name: statistics.median(samples) for name, samples in turns.items()}
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
