"""Features say what a description says: work, traffic, neighbours; and a large workload is the sum of its parts."""

import math

import numpy as np
import pytest

from estimators.features import Roofline, Task, features_of
from estimators.features_operator import operator_class, operator_facts
from estimators.features_table import ROW_NAMES, TOTAL_NAMES, as_markdown


def tensor(*shape: int) -> list:
    return [list(shape), "float32"]


def conv(source: list, kernel: tuple[int, ...], out: list, groups: int = 1, stride: int = 1) -> dict:
    attrs = {"strides": [stride, stride], "dilation": [1, 1], "groups": groups}
    return {"op": "relax.nn.conv2d", "attrs": attrs, "args": [source, ["const", tensor(*kernel)]], "out": out}


def relu(source: list, out: list) -> dict:
    return {"op": "relax.nn.relu", "attrs": {}, "args": [source], "out": out}


def task(nodes: list, inputs: list, name: str = "s", composites: tuple = ()) -> Task:
    return Task(name, {"inputs": inputs, "nodes": nodes, "outputs": [["node", len(nodes) - 1]]}, composites, 1)


IMAGE = tensor(1, 16, 8, 8)


def test_a_convolution_is_its_implicit_matrix_product() -> None:
    facts = operator_facts(conv(["in", 0], (32, 16, 3, 3), tensor(1, 32, 8, 8)), [IMAGE], [tensor(32, 16, 3, 3)])
    assert (facts.rows, facts.columns, facts.products, facts.groups) == (64, 32, 16 * 9, 1)
    assert facts.flops == 2 * 64 * 32 * 16 * 9
    assert (facts.input_bytes, facts.weight_bytes, facts.output_bytes) == (4096, 18432, 8192)


def test_a_depthwise_convolution_is_a_class_of_its_own() -> None:
    facts = operator_facts(conv(["in", 0], (16, 1, 3, 3), IMAGE, groups=16), [IMAGE], [tensor(16, 1, 3, 3)])
    assert facts.cls == "depthwise"
    assert facts.flops == 2 * 64 * 16 * 9


def test_a_transposed_convolution_multiplies_per_input_element() -> None:
    node = {
        "op": "relax.nn.conv2d_transpose",
        "attrs": {"strides": [2, 2], "groups": 1},
        "args": [["in", 0], ["const", tensor(16, 8, 4, 4)]],
        "out": tensor(1, 8, 16, 16),
    }
    facts = operator_facts(node, [IMAGE], [tensor(16, 8, 4, 4)])
    assert facts.flops == 2 * 64 * 16 * 8 * 16


def test_a_batch_times_one_weight_is_one_long_product() -> None:
    node = {"op": "relax.matmul", "attrs": {}, "args": [["in", 0], ["const", tensor(7, 5)]], "out": tensor(2, 3, 5)}
    facts = operator_facts(node, [tensor(2, 3, 7)], [tensor(7, 5)])
    assert (facts.rows, facts.columns, facts.products, facts.groups, facts.flops) == (6, 5, 7, 1, 420)


def test_a_batch_times_a_batch_is_many_products() -> None:
    node = {"op": "relax.matmul", "attrs": {}, "args": [["in", 0], ["in", 1]], "out": tensor(2, 3, 5)}
    facts = operator_facts(node, [tensor(2, 3, 7), tensor(2, 7, 5)], [])
    assert (facts.rows, facts.groups, facts.flops) == (3, 2, 420)


def test_a_view_moves_nothing() -> None:
    node = {"op": "relax.reshape", "attrs": {}, "args": [["in", 0]], "out": tensor(16, 64)}
    facts = operator_facts(node, [IMAGE], [])
    assert (facts.bytes, facts.flops, facts.is_view) == (0, 0, True)


def test_rows_and_totals_have_the_documented_columns() -> None:
    table = features_of([task([relu(["in", 0], IMAGE)], [IMAGE])], Roofline())
    assert table.rows.shape == (4, len(ROW_NAMES))  # the operator, entry, exit, call
    assert table.totals.shape == (1, len(TOTAL_NAMES))
    assert all(f"`{name}`" in as_markdown() for name in (*ROW_NAMES, *TOTAL_NAMES))


def test_equal_operators_share_a_row() -> None:
    nodes = [relu(["in", 0], IMAGE), relu(["node", 0], IMAGE), relu(["node", 1], IMAGE), relu(["node", 2], IMAGE)]
    alone = features_of([task(nodes, [IMAGE])], Roofline())
    twice = features_of([task(nodes, [IMAGE]), task([dict(n) for n in nodes], [IMAGE], "t")], Roofline())
    assert len(twice.rows) == len(alone.rows)
    assert (twice.counts[0] != twice.counts[1]).nnz == 0


def test_an_elementwise_operator_after_an_anchor_is_told_from_one_alone() -> None:
    nodes = [conv(["in", 0], (16, 16, 1, 1), IMAGE), relu(["node", 0], IMAGE)]
    table = features_of([task(nodes, [IMAGE]), task([relu(["in", 0], IMAGE)], [IMAGE], "t")], Roofline())
    after = table.rows[:, ROW_NAMES.index("after_anchor")]
    elementwise = table.rows[:, ROW_NAMES.index("is_elementwise")] == 1
    assert sorted(after[elementwise]) == [0.0, 1.0]
    assert table.totals[0, TOTAL_NAMES.index("kernels")] == pytest.approx(math.log2(1 + 1))


def test_composites_differ_though_structures_do_not() -> None:
    nodes = [relu(["in", 0], IMAGE)]
    table = features_of([task(nodes, [IMAGE]), task(nodes, [IMAGE], composites=(("relu", (0,)),))], Roofline())
    column = table.totals[:, TOTAL_NAMES.index("composite_share")]
    assert column.tolist() == [0.0, 1.0]


def test_the_roofline_is_the_slower_of_arithmetic_and_traffic() -> None:
    roofline = Roofline(flops=100.0, bandwidth=10.0)
    assert roofline.seconds(1000, 10, 1) == 10
    assert roofline.seconds(10, 1000, 1) == 100
    assert roofline.seconds(10, 1000, 2) == 50


def test_wider_vectors_have_a_higher_peak() -> None:
    wide, narrow = Roofline.of({"features": ["avx512f"]}), Roofline.of({"features": ["avx2"]})
    assert wide.flops == 2 * narrow.flops


def test_some_of_a_batch_keep_their_features() -> None:
    nodes = [conv(["in", 0], (16, 16, 1, 1), IMAGE), relu(["node", 0], IMAGE)]
    table = features_of([task(nodes, [IMAGE]), task([relu(["in", 0], IMAGE)], [IMAGE], "t")], Roofline())
    part = table.take(np.array([1]))
    assert part.counts.shape[0] == 1
    assert (part.counts @ part.floors)[0] == pytest.approx((table.counts @ table.floors)[1])


def test_a_workload_is_reported_under_its_anchor() -> None:
    assert operator_class(["relax.add", "relax.matmul", "relax.add"]) == "matmul"
    assert operator_class(["relax.reshape", "relax.add"]) == "elementwise"
