"""Plans written by hand: what the summary says of them is known."""

from __future__ import annotations

from collage.api.plan import Plan
from collage.backends.onnx.onnxruntime import ONNXRuntimeBackend
from collage.backends.onnx.openvino import OpenVINOBackend
from collage.backends.tvm.backend import TVMBackend
from collage.confirm.confirmation import SEARCHED, Confirmation, Contestant
from collage.cost.cost import Cost
from collage.planned.data import PlannedPartition, PlanRound


def block(first: int) -> list[PlannedPartition]:
    """Two partitions that every block of the network repeats."""
    return [
        PlannedPartition(
            backend="openvino",
            nodes=(first, first + 1, first + 2),
            operators=("relax.nn.conv2d", "relax.add", "relax.nn.relu"),
            cost=Cost(1.0e-3, 2.0e-5, 9, "converged"),
            runner_up="onnxruntime",
            runner_up_cost=Cost(1.1e-3, 1.0e-5, 9, "converged"),
        ),
        PlannedPartition(
            backend="tvm",
            nodes=(first + 3,),
            operators=("relax.nn.softmax",),
            cost=Cost(5.0e-4, 1.0e-5, 9, "converged"),
        ),
    ]


def contestant(name: str, milliseconds: float, ratio: float | None, reason: str = "converged") -> Contestant:
    interval = None if ratio is None else (ratio, ratio - 0.01, ratio + 0.01)
    return Contestant(name, Cost(milliseconds * 1e-3, 1.0e-5, 20, reason), interval)


def plan(
    contestants: tuple[Contestant, ...] = (), shipped: str = SEARCHED, blocks: int = 3, notes: tuple[str, ...] = ()
) -> Plan:
    """`blocks` equal blocks and a reshape on the host; confirmed when there are contestants."""
    partitions = [p for number in range(blocks) for p in block(4 * number)]
    host = PlannedPartition(backend="host", nodes=(4 * blocks,), operators=("relax.reshape",))
    backends = {b.name: b for b in (OpenVINOBackend(), ONNXRuntimeBackend(), TVMBackend())}
    return Plan(
        module=None,
        network="0123456789abcdef",
        choice=shipped,
        partitions=(*partitions, host),
        backends=backends,
        versions={name: backend.version() for name, backend in backends.items()},
        threads=2,
        searched_cost=Cost(4.5e-3, 4.0e-5),
        rounds=(
            PlanRound(partitions=6, searched=4.5e-3, isolated=4.0e-3, latency=Cost(5.0e-3, 1e-5, 20), loss=0.9),
            PlanRound(partitions=4, searched=4.4e-3, isolated=4.2e-3, latency=Cost(5.5e-3, 1e-5, 20), loss=1.0),
        ),
        lower_bound=4.5e-3,
        confirmation=Confirmation(shipped, contestants) if contestants else None,
        searcher="DijkstraSearcher()",
        estimator="MeasuredEstimator",
        notes=notes,
    )
