"""Plans with a network, written by hand: blocks of conv2d, add, relu on one backend and softmax on another."""

from __future__ import annotations

from msgspec.structs import replace

from collage.api.plan import Plan
from collage.confirm.confirmation import SEARCHED
from collage.cost.transition import Transition
from collage.deployed.timeline import TimedCall
from collage.planned.data import PlannedAccuracy, PlannedPartition, PlannedPoint, PlannedTransition
from collage.planned.graph import (
    INSIDE,
    MEASURED,
    NOT_ASKED,
    PlannedCandidate,
    PlannedCandidates,
    PlannedGraph,
    PlannedNode,
)
from tests.collage.report.plans import contestant, plan

_TENSOR = "float32[1,64,56,56]"
_ATTRIBUTES = {"strides": [1, 1], "padding": [1, 1, 1, 1], "groups": 1}


def network(blocks: int = 3, name: str = "layer") -> PlannedGraph:
    """An input (node 4 × blocks + 1), a weight after it, and before them what `plan` has partitions of."""
    first, weight = 4 * blocks + 1, 4 * blocks + 2
    nodes = []
    for block in range(blocks):
        at = 4 * block
        before = at - 1 if block else first
        nodes += [
            PlannedNode("relax.nn.conv2d", (before, weight), _TENSOR, f"{name}{block}.conv", 0),
            PlannedNode("relax.add", (at, before), _TENSOR),
            PlannedNode("relax.nn.relu", (at + 1,), _TENSOR, f"{name}{block}.relu"),
            PlannedNode("relax.nn.softmax", (at + 2,), _TENSOR),
        ]
    nodes.append(PlannedNode("relax.reshape", (4 * blocks - 1,), "float32[1,200704]"))
    nodes.append(PlannedNode("input", (), _TENSOR, "image"))
    nodes.append(PlannedNode("constant", (), "float32[64,64,3,3]"))
    return PlannedGraph(tuple(nodes), (_ATTRIBUTES,))


def candidates(blocks: int) -> PlannedCandidates:
    """Of the first block; the others are like it."""
    listed = (
        PlannedCandidate(0, "openvino", "0-2", MEASURED, 1.0e-3, 2e-5, 8e-4, 1.3e-3),
        PlannedCandidate(0, "onnxruntime", "0-2", INSIDE, 1.1e-3, 1e-5),
        PlannedCandidate(0, "tvm", "0-2", NOT_ASKED, None, 0.0, 2e-3, 4e-3),
        PlannedCandidate(0, "tvm", "2-3", MEASURED, 9e-4, 1e-5),
        PlannedCandidate(1, "tvm", "3", MEASURED, 5e-4, 1e-5),
    )
    alike = (*(0, 1) * blocks, 2 * blocks)
    return PlannedCandidates(40 * blocks, 12 * blocks, alike, (7, *(0,) * (2 * blocks)), listed)


def with_network(blocks: int = 3, name: str = "layer", notes: tuple[str, ...] = ()) -> Plan:
    """A confirmed plan within an error budget, with all that a page can show."""
    inside = (1.1e-3, 4e-4) * blocks
    contestants = (
        replace(contestant(SEARCHED, 5.0, 1.0), partition_seconds=inside, fresh=True),
        replace(contestant("openvino by itself", 5.3, 1.06), rival=True, fresh=True),
        contestant("openvino alone", 5.6, 1.12),
        contestant("untouched TVM", 900.0, 180.0),
        contestant("tvm alone", 60.0, None, "stopped early: far slower than its rivals"),
    )
    found = plan(contestants, blocks=blocks, notes=notes)
    charged = (
        PlannedTransition("openvino", "tvm", Transition(1e-5)),
        PlannedTransition("tvm", "openvino", Transition(2e-5)),
    )
    points = tuple(
        PlannedPoint(
            sum_s=ms * 1e-3, bound_s=ms * 0.98e-3, predicted=error, measured=error, upper=1.2 * error, backends=("tvm",)
        )
        for error, ms in ((0.0, 4.5), (2e-3, 3.5), (8e-3, 2.5))
    )
    accuracy = PlannedAccuracy(
        limit=0.01, metric=False, samples=32, predicted=2e-3, measured=2e-3, upper=3e-3, judged=3
    )
    return replace(
        found,
        graph=network(blocks, name),
        candidates=candidates(blocks),
        transitions=charged,
        inputs={"image": (1, 64, 56, 56)},
        accuracy=accuracy,
        frontier=points,
        partitions=tuple(_narrow(p, i) for i, p in enumerate(found.partitions)),
    )


def _narrow(partition: PlannedPartition, number: int) -> PlannedPartition:
    """The last softmax in bf16."""
    return replace(partition, precision="bf16") if partition.backend == "tvm" and number == 1 else partition


def with_timeline(ours: Plan) -> Plan:
    """The same, whose calls were watched with their starts: a gap after each conv2d, a reshape after each softmax but
    the last.
    """
    assert ours.confirmation is not None
    calls: list[TimedCall] = []
    for block in range(len(ours.partitions) // 2):
        at = 1.6e-3 * block
        before = [TimedCall("fused_reshape", -1, at - 1e-4, at)] if block else []
        calls += [*before, TimedCall("", 2 * block, at, at + 1e-3)]
        calls.append(TimedCall("", 2 * block + 1, at + 1.1e-3, at + 1.5e-3))
    contestants = tuple(
        replace(c, timeline=tuple(calls)) if c.name == ours.confirmation.shipped else c
        for c in ours.confirmation.contestants
    )
    return replace(ours, confirmation=replace(ours.confirmation, contestants=contestants))
