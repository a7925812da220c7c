"""The schedule rules: what they make of a kernel, and that it is worth it."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm_partitions import f, partition

from collage.backends.tvm.lower import cpu_target, one_kernel_per_partition
from collage.backends.tvm.schedule.kernel import schedule
from collage.backends.tvm.schedule.machine import Machine
from collage.backends.tvm.schedule.tile import best_tile

R = relax.op
TARGET = cpu_target(2)
AVX512 = Machine(vector_bits=512, registers=32, threads=2)
AVX2 = Machine(vector_bits=256, registers=16, threads=2)


def kernel(specs: Any, body: Any) -> Any:
    return one_kernel_per_partition(partition(specs, body), TARGET)["partition"]


def convolution() -> Any:
    return kernel(
        [f(1, 32, 28, 28), f(32, 32, 3, 3), f(1, 32, 1, 1)],
        lambda bb, x, w, b: R.nn.relu(bb.emit(R.add(bb.emit(R.nn.conv2d(x, w, padding=(1, 1))), b))),
    )


def seconds(func: Any) -> float:
    compiled = tvm.compile(func.with_attr("global_symbol", "main"), target=TARGET)["main"]
    shapes = [
        [int(d) for d in func.buffer_map[p].shape] if hasattr(func, "buffer_map") else p.shape for p in func.params
    ]
    arrays = [tvm.runtime.tensor(np.ones([int(d) for d in shape], "float32")) for shape in shapes]
    compiled(*arrays)
    samples = []
    for _ in range(5):
        begin = time.perf_counter()
        compiled(*arrays)
        samples.append(time.perf_counter() - begin)
    return min(samples)


@pytest.mark.parametrize("machine", [AVX512, AVX2])
@pytest.mark.parametrize(("rows", "vectors"), [(64, 29), (128, 192), (1, 64), (7, 3), (1000, 1)])
def test_a_tile_divides_its_axes_and_fits_the_registers(machine: Machine, rows: int, vectors: int) -> None:
    tile = best_tile(rows, vectors, machine)
    assert rows % tile[0] == 0
    assert vectors % tile[1] == 0
    operands = 1 + (tile[1] if tile[0] > 1 else 1)
    assert tile[0] * tile[1] + operands <= machine.registers


def test_large_products_get_enough_independent_sums() -> None:
    rows, vectors = best_tile(128, 192, AVX512)
    assert rows * vectors >= 12


def test_lanes_follow_the_dtype() -> None:
    assert [AVX512.lanes(dtype) for dtype in ("float32", "float64", "int8")] == [16, 8, 64]


def test_a_convolution_runs_in_vectors_on_all_threads() -> None:
    text = schedule(convolution(), TARGET).script()
    assert "T.parallel" in text
    assert "T.vectorized" in text
    assert 'scope="local"' in text


def test_a_small_kernel_stays_on_one_thread() -> None:
    func = kernel([f(8, 8)], lambda bb, x: R.nn.relu(x))
    assert "T.parallel" not in schedule(func, TARGET).script()


def test_one_thread_means_no_parallel_loops() -> None:
    assert "T.parallel" not in schedule(convolution(), cpu_target(1)).script()


def test_what_no_rule_takes_stays_as_it_is() -> None:
    func = kernel([f(8, 20)], lambda bb, x: R.sort(x, axis=1))
    tvm.ir.assert_structural_equal(schedule(func, TARGET), func)


def test_rules_make_a_convolution_several_times_faster() -> None:
    func = convolution()
    assert seconds(func) > 4 * seconds(schedule(func, TARGET))
