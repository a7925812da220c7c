"""Errors of a cost model, and observations of a database, written by hand: what the pages say of them is known."""

from __future__ import annotations

from dataclasses import replace

from collage.cost.cost import Cost
from collage.cost.estimator import Calibrated, ErrorReport, ErrorRow, Prediction
from collage.records import Record
from tests.collage.records.conftest import make_record

#: Predicted over measured latencies of each network, over and over.
RATIOS = (1.0, 1.1, 0.9, 1.3)


def errors(networks: int = 3, each: int = 8, label: str = "conv2d+relu") -> ErrorReport:
    """Of two backends; intervals reach 20% to both sides, so that every fourth latency is outside."""
    predictions = [
        _prediction(("openvino", "tvm")[number % 2], network, number, label)
        for network in range(networks)
        for number in range(each)
    ]
    names = ("all", "openvino", "tvm", "convolution")
    rows = tuple(ErrorRow(name, len(predictions), 0.125, 0.75, 0.75, 0.9, 0.75) for name in names)
    return ErrorReport(
        rows,
        networks,
        coverage=0.9,
        predictions=tuple(predictions),
        calibration=tuple(Calibrated(name, level, 0.9 * level) for name in names[:3] for level in (0.5, 0.8, 0.95)),
        unseen={"any backend": ("nn.conv3d", label), "tvm": ("matmul",)},
    )


def _prediction(name: str, network: int, number: int, label: str) -> Prediction:
    seconds = 1e-4 * 3**number
    predicted = seconds * RATIOS[number // 2 % len(RATIOS)]
    record = replace(make_record(number, Cost(seconds), backend=name), label=f"{name} {label}")
    return Prediction(name, network, record, seconds, predicted, predicted / 1.2, predicted * 1.2)


def observations(reason: str = "does not compile: error 17 in line 3") -> list[Record]:
    """Two sessions on two hosts: three candidates in both, a failure, a transition; the second one was disturbed."""
    found = []
    for session, load in enumerate((0.0, 0.4)):
        about = {
            "session": f"{session}" * 16,
            "conditions": {"load": load, "steal": 0.0},
            "device": {"model": "a processor", "host": f"host{session}"},
            "timestamp": f"2026-01-0{session + 1}T10:00:00.000000+00:00",
        }
        costs = [Cost(1e-3 * (number + 1) * (1 + 0.03 * session), 2e-5, 9, "converged") for number in range(3)]
        found += [replace(make_record(number, cost), **about) for number, cost in enumerate(costs)]
        found.append(replace(make_record("bad", Cost.invalid(reason), backend="tvm"), **about))
    found.append(replace(make_record("t", kind="transition", backend="tvm->openvino"), session="", conditions={}))
    return found
