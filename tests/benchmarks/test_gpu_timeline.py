"""Where the time of a call goes on a device, from the begin and end of what ran there."""

from __future__ import annotations

import pytest

from benchmarks.gpu.timeline import kernels_of


def test_a_kernel_has_its_runs_a_call_its_time_and_the_idle_time_before_it() -> None:
    one_call = [("product", 0.0, 6.0), ("norm", 7.0, 9.0), ("product", 9.5, 15.5)]
    later = [(name, begin + 1000.0, end + 1000.0) for name, begin, end in one_call]
    product, norm = kernels_of([*later, *one_call], 2)
    assert (product.name, product.per_call, product.took_us) == ("product", 2.0, 6.0)
    assert product.idle_us == pytest.approx(0.25), "what lies between two calls is nobody's"
    assert (norm.per_call, norm.took_us, norm.idle_us) == (1.0, 2.0, 1.0)
    assert product.share_us == pytest.approx(12.5)


def test_kernels_that_overlap_are_not_idle_before() -> None:
    assert {kernel.name: kernel.idle_us for kernel in kernels_of([("a", 0.0, 5.0), ("b", 4.0, 6.0)], 1)} == {
        "a": 0.0,
        "b": 0.0,
    }
    assert kernels_of([], 3) == []
