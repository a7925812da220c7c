"""Where the time of a call goes on the device, kernel by kernel, of a compiled model and of a peer.

    python -m benchmarks.gpu.timeline --state STATE --network bert_base --dtype float16 --peers torch-max-autotune

CUPTI, by PyTorch's profiler, tells when each kernel began and ended, those of CUDA graphs too. Each contestant runs in
a process of its own, some calls one after another. Printed is, for each kernel of a call, how often it ran, how long it
took and how long the device was idle before it; STATE/timeline.jsonl gets the same. Kernels are slower while they are
watched, and more so the shorter they are: compare them with each other, not with latencies.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.gpu.contestant import Load, network_of, runner
from benchmarks.gpu.isolated import Isolated
from benchmarks.gpu.peers import PEERS

_WARM_CALLS, _CALLS = 5, 20
_LIMIT_S = 120.0
_SHOWN, _WIDTH = 14, 90


@dataclass(frozen=True)
class Kernel:
    """All runs of one kernel in the calls that were watched.

    Attributes
    ----------
    per_call
        How often it ran in a call.
    took_us, idle_us
        The mean of a run, and of the time before it in which nothing ran; microseconds.
    """

    name: str
    per_call: float
    took_us: float
    idle_us: float

    @property
    def share_us(self) -> float:
        """Microseconds of a call."""
        return self.per_call * (self.took_us + self.idle_us)


def kernels_of(spans: Sequence[tuple[str, float, float]], calls: int) -> list[Kernel]:
    """What ran, the largest share of the time first.

    Parameters
    ----------
    spans
        Name, begin and end of each run, microseconds. Idle time counts from the end of what ran before, whatever that
        was, but not across calls: where a tenth of a call and more would be idle, a call begins.
    """
    runs: dict[str, list[tuple[float, float]]] = {}
    ordered = sorted(spans, key=lambda span: span[1])
    call = (ordered[-1][2] - ordered[0][1]) / calls if ordered else 0.0
    before = ordered[0][1] if ordered else 0.0
    for name, begin, end in ordered:
        idle = max(0.0, begin - before)
        runs.setdefault(name, []).append((end - begin, idle if idle < 0.1 * call else 0.0))
        before = max(before, end)
    found = []
    for name, of_it in runs.items():
        took, idle = (sum(values) / len(of_it) for values in zip(*of_it, strict=True))
        found.append(Kernel(name, len(of_it) / calls, took, idle))
    return sorted(found, key=lambda kernel: -kernel.share_us)


def watched(asked: Load) -> list[tuple[str, float, float]]:
    """The spans of some calls; for `benchmarks.gpu.isolated`."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    run = runner(asked, *network_of(asked))
    for _ in range(_WARM_CALLS):
        run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        for _ in range(_CALLS):
            run()
        torch.cuda.synchronize()
    found = [event for event in recorded.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    return [(event.name, float(event.time_range.start), float(event.time_range.end)) for event in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--state", type=Path, required=True, help="folder with models/, of benchmarks.gpu")
    parser.add_argument("--network", default="bert_base")
    parser.add_argument("--dtype", default="float16")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=["torch-max-autotune"])
    asked = parser.parse_args()
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(asked.state / "inductor"))  # as of `benchmarks.gpu.session`
    models = sorted(asked.state.glob(f"models/{asked.network}-{asked.dtype}-1-*.so"))
    loads = [Load(model.stem, asked.network, asked.dtype, 1, library=str(model)) for model in models]
    loads += [Load(name, asked.network, asked.dtype, 1) for name in asked.peers]
    for load in loads:
        with closing(Isolated(watched, load, torch=True, log=asked.state / "timeline.log")) as process:
            try:
                spans = process.receive(time.monotonic() + _LIMIT_S)
            except (TimeoutError, RuntimeError) as error:
                print(f"{load.name}: {error}", flush=True)
                continue
        found = kernels_of(spans, _CALLS)
        with (asked.state / "timeline.jsonl").open("a") as rows:
            rows.write(json.dumps({"name": load.name, "kernels": [asdict(kernel) for kernel in found]}) + "\n")
        busy = sum(kernel.per_call * kernel.took_us for kernel in found)
        whole = sum(kernel.share_us for kernel in found)
        count = sum(kernel.per_call for kernel in found)
        print(f"{load.name}: {count:.0f} kernels a call, {busy:.0f} of {whole:.0f} us")
        for kernel in found[:_SHOWN]:
            name = kernel.name[:_WIDTH]
            print(f"  {kernel.per_call:5.1f} x {kernel.took_us:6.2f} + {kernel.idle_us:5.2f} us  {name}", flush=True)


if __name__ == "__main__":
    main()
