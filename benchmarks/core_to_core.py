"""Do distant cores explain a latency? `python -m benchmarks.core_to_core NETWORK [MORE ...] -o OUT.json`.

Rivals run a network by their own APIs, each in a process of its own, again and again for some time. Before and after
each look at them the latency between the first two processors is measured. The table has median latencies of looks on
near cores, on distant ones, on one core that both share, and of those during which that changed.
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
from collage.measure.core_to_core import ONE_CORE_S, round_trip

_RIVALS = ("openvino", "onnxruntime")
#: Between looks, in turns.
_PAUSE = 6


def look_at(network: str, seconds: float, turn: float) -> list[dict[str, float]]:
    """For so many seconds: those of a call of each rival, in turns of `turn` seconds, and of round trips before and
    after.
    """
    looks = []
    first, second, *_ = sorted(os.sched_getaffinity(0))
    with engines_on(network, dict(zip(_RIVALS, _RIVALS, strict=True))) as rivals:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            look = {"before": round_trip(first, second)}
            turns = {name: rival.ask(time=turn, warm=turn / 2)["samples"] for name, rival in rivals.items()}
            look |= {name: statistics.median(samples) for name, samples in turns.items()}
            looks.append({**look, "after": round_trip(first, second)})
            time.sleep(_PAUSE * turn)
    return looks


def _state(seconds: float, far: float) -> str:
    if seconds < ONE_CORE_S:
        return "one core"
    return "distant" if seconds > far else "near"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--seconds", type=float, default=100.0, help="of each network")
    parser.add_argument("--turn", type=float, default=0.1, help="seconds of each rival in a look")
    parser.add_argument("-o", "--out", type=Path, required=True)
    options = parser.parse_args()
    found = {network: look_at(network, options.seconds, options.turn) for network in options.networks}
    options.out.write_text(json.dumps({**origin(), "looks": found}) + "\n")
    ends = ("before", "after")
    cores = [s for looks in found.values() for look in looks for when in ends if (s := look[when]) >= ONE_CORE_S]
    far = LIMITS["core_to_core"] * min(cores, default=ONE_CORE_S)
    for network, looks in found.items():
        states: dict[str, list[dict[str, float]]] = {"near": [], "distant": [], "one core": [], "changed": []}
        for look in looks:
            names = {_state(look[when], far) for when in ends}
            states["changed" if len(names) > 1 else names.pop()].append(look)
        for state, some in states.items():
            medians = {name: statistics.median(look[name] for look in some) for name in some[0]} if some else {}
            told = ", ".join(f"{name} {1e6 * value:.3g}" for name, value in medians.items())
            print(f"{network}, {state}: {len(some)} looks; us: {told}")


if __name__ == "__main__":
    main()
