"""The timeline of one call: partitions at their starts, and what is called between them."""

from __future__ import annotations

from collage.deployed.timeline import TimedCall, timeline
from collage.measure.instrument import Span
from collage.measure.watching import calls_of, parts_of

CALLS = (
    ("collage_openvino_0", 0.0, 1e-3),
    ("fused_reshape", 1.2e-3, 1.3e-3),
    ("collage_tvm_1", 1.5e-3, 2e-3),
    ("within_collage_tvm_1_1", 2.1e-3, 2.5e-3),
    ("vm.builtin.to_device", 2.6e-3, 2.7e-3),
)


def test_partitions_are_numbered_and_their_steps_are_one() -> None:
    assert timeline(CALLS, 2) == (
        TimedCall("", 0, 0.0, 1e-3),
        TimedCall("fused_reshape", -1, 1.2e-3, 1.3e-3),
        TimedCall("", 1, 1.5e-3, 2.5e-3),
        TimedCall("vm.builtin.to_device", -1, 2.6e-3, 2.7e-3),
    )


def test_calls_of_another_placement_or_very_many_are_no_timeline() -> None:
    assert timeline(CALLS, 3) == () and timeline((), 0) == ()
    assert timeline([(f"collage_tvm_{i}", i, i + 1) for i in range(3000)], 3000) == ()


def test_calls_are_the_medians_of_runs_since_their_first_call() -> None:
    runs = [
        [Span("a", start, start + 1.0), Span("b", start + 1.5 + late, start + 3.0 + late)]
        for start, late in ((10.0, 0.0), (20.0, 0.5), (30.0, 9.0))
    ]
    assert calls_of(runs) == (("a", 0.0, 1.0), ("b", 2.0, 3.5))
    assert calls_of([runs[0], runs[1][:1]]) == () and calls_of([]) == () and calls_of([[]]) == ()


def test_what_is_between_two_calls_belongs_to_the_first_on_the_host_and_to_none_on_a_device() -> None:
    calls = [("a", 1.0, 2.0), ("b", 2.5, 4.0)]
    host = [Span(symbol, begin, end) for symbol, begin, end in calls]
    device = [Span(symbol, begin, end, 0.1) for symbol, begin, end in calls]
    assert parts_of([host] * 3) == (("a", 1.5), ("b", 1.5))
    assert parts_of([device] * 3) == (("a", 1.0), ("b", 1.5))
    assert parts_of([host, host[:1]]) == () and parts_of([]) == ()
