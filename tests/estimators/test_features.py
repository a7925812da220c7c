"""Features say what a description says: work, traffic, fusion, borders; work adds up over operators."""

import math
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from estimators.cost_model.analytic import Analytic
from estimators.cost_model.trees import COLUMNS, tree_inputs
from estimators.features.batch import Roofline, Task, as_markdown, features_of
from estimators.features.columns import KINDS, WORK_NAMES
from estimators.features.kernel import DETAIL_NAMES
from estimators.features.operator import operator_class, operator_facts
from estimators.features.workload import TOTAL_NAMES


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


@pytest.mark.parametrize(("channels", "filters", "groups"), [(16, 32, 1), (16, 16, 16), (16, 32, 4)])
@pytest.mark.parametrize("spatial", [(8, 9), (4, 8, 9)])
def test_a_convolution_is_the_same_product_in_every_layout(
    channels: int, filters: int, groups: int, spatial: tuple[int, ...]
) -> None:
    """But for the last extent, along which a vector register reads."""
    axes = "DHW"[-len(spatial) :]
    window = (3,) * len(spatial)
    planes = ((1, channels, *spatial), (filters, channels // groups, *window), (1, filters, *spatial))
    last = tuple((first, *rest, second) for first, second, *rest in planes)
    found = []
    for layouts, shapes in (((f"NC{axes}", f"OI{axes}"), planes), ((f"N{axes}C", f"O{axes}I"), last)):
        for out_layout in ("", layouts[0]):
            source, kernel, result = (tensor(*shape) for shape in shapes)
            attrs = {"strides": [1] * len(spatial), "groups": groups}
            attrs |= {"data_layout": layouts[0], "kernel_layout": layouts[1], "out_layout": out_layout}
            node = {"op": f"relax.nn.conv{len(spatial)}d", "attrs": attrs, "out": result}
            found.append(operator_facts(node, [source], [kernel]))
    assert found[0].flops == 2 * math.prod(spatial) * filters * channels // groups * math.prod(window)
    assert found[0].cls == ("depthwise" if groups == channels else "convolution")
    assert (found[0].inner, found[2].inner) == (9, filters)
    assert len({replace(facts, inner=0) for facts in found}) == 1


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


@pytest.mark.parametrize(
    ("operand", "run"),
    [((1, 16, 8, 8), 1024), ((1, 16, 1, 1), 64), ((8,), 8), ((16, 8, 1), 8), ((1, 1, 8, 8), 64), ((), 1024)],
)
def test_a_run_ends_where_a_broadcast_operand_is_read_otherwise(operand: tuple[int, ...], run: int) -> None:
    node = {"op": "relax.add", "attrs": {}, "args": [["in", 0], ["const", tensor(*operand)]], "out": IMAGE}
    assert operator_facts(node, [IMAGE], [tensor(*operand)]).run == run


def test_a_view_moves_nothing() -> None:
    node = {"op": "relax.reshape", "attrs": {}, "args": [["in", 0]], "out": tensor(16, 64)}
    facts = operator_facts(node, [IMAGE], [])
    assert (facts.bytes, facts.flops, facts.is_view) == (0, 0, True)


def work(nodes: list, name: str) -> float:
    """The amount of work of that name in a workload with the input IMAGE."""
    return float(features_of([task(nodes, [IMAGE])], Roofline()).work[0, WORK_NAMES.index(name)])


def test_work_and_totals_have_the_documented_columns() -> None:
    table = features_of([task([relu(["in", 0], IMAGE)], [IMAGE])], Roofline())
    assert table.work.shape == (1, len(WORK_NAMES))
    assert table.totals.shape == (1, len(TOTAL_NAMES))
    assert all(f"`{name}`" in as_markdown() for name in (*KINDS, *TOTAL_NAMES, *DETAIL_NAMES))


def test_the_documentation_has_the_features_of_today() -> None:
    page = (Path(__file__).parents[2] / "docs" / "FEATURES.md").read_text(encoding="utf-8")
    assert as_markdown().rstrip() in page


def test_the_work_of_a_sequence_is_the_sum_of_its_operators_work() -> None:
    one = [relu(["in", 0], IMAGE)]
    four = [*one, relu(["node", 0], IMAGE), relu(["node", 1], IMAGE), relu(["node", 2], IMAGE)]
    for term in ("calls", "flops", "input", "output"):
        assert work(four, f"elementwise.{term}") == pytest.approx(4 * work(one, f"elementwise.{term}")) != 0
    for border in ("entry_elementwise.bytes", "exit_elementwise.bytes", "call.calls"):
        assert work(four, border) == pytest.approx(work(one, border)) != 0


def test_the_same_workload_has_the_same_features_whatever_it_comes_with() -> None:
    nodes = [conv(["in", 0], (16, 16, 1, 1), IMAGE), relu(["node", 0], IMAGE)]
    alone = features_of([task(nodes, [IMAGE])], Roofline())
    among = features_of([task([relu(["in", 0], IMAGE)], [IMAGE], "t"), task(deepcopy(nodes), [IMAGE])], Roofline())
    assert np.array_equal(alone.work[0], among.work[1]) and np.array_equal(alone.totals[0], among.totals[1])


def test_an_elementwise_operator_after_an_anchor_is_an_epilogue() -> None:
    nodes = [conv(["in", 0], (16, 16, 1, 1), IMAGE), relu(["node", 0], IMAGE)]
    assert work(nodes, "epilogue.calls") > 0 == work(nodes, "elementwise.calls")
    assert work([relu(["in", 0], IMAGE)], "elementwise.calls") > 0
    table = features_of([task(nodes, [IMAGE])], Roofline())
    assert table.totals[0, TOTAL_NAMES.index("kernels")] == pytest.approx(math.log2(1 + 1))


def test_an_elementwise_operator_after_a_result_that_is_taken_twice_is_no_epilogue() -> None:
    nodes = [conv(["in", 0], (16, 16, 1, 1), IMAGE), relu(["node", 0], IMAGE), relu(["node", 0], IMAGE)]
    assert work(nodes, "epilogue.calls") == 0


def test_what_crosses_the_border_is_counted_by_the_class_that_takes_it() -> None:
    nodes = [conv(["in", 0], (16, 16, 1, 1), IMAGE), relu(["node", 0], IMAGE)]
    assert work(nodes, "entry_convolution.bytes") > 0 == work(nodes, "entry_elementwise.bytes")
    assert work(nodes, "exit_elementwise.bytes") > 0 == work(nodes, "exit_convolution.bytes")


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
    assert part.roofline.tolist() == [table.roofline[1]]
    assert np.array_equal(part.work[0], table.work[1]) and np.array_equal(part.totals[0], table.totals[1])


def test_a_workload_is_reported_under_its_anchor() -> None:
    assert operator_class(["relax.add", "relax.matmul", "relax.add"]) == "matmul"
    assert operator_class(["relax.reshape", "relax.add"]) == "elementwise"


def details(nodes: list, inputs: list) -> list[dict[str, float]]:
    """The details of a workload's distinct kernels, by name."""
    table = features_of([task(nodes, inputs)], Roofline())
    return [dict(zip(DETAIL_NAMES, row.tolist(), strict=True)) for row in table.kernel_details]


def test_a_kernel_is_an_anchor_with_its_epilogue_and_knows_its_border() -> None:
    add = {"op": "relax.add", "attrs": {}, "args": [["node", 0], ["in", 1]], "out": IMAGE}
    (kernel,) = details([conv(["in", 0], (16, 16, 3, 3), IMAGE), add, relu(["node", 1], IMAGE)], [IMAGE, IMAGE])
    assert (kernel["epilogue"], kernel["entering"], kernel["leaving"], kernel["consumers"]) == (2, 2, 1, 0)
    assert kernel["epilogue_input"] == pytest.approx(math.log2(1 + 4096))
    assert (kernel["window"], kernel["stride"], kernel["rank"], kernel["constant"]) == (9, 1, 4, 1)


def test_details_show_whether_extents_fill_whole_vectors() -> None:
    odd = tensor(1, 17, 8, 8)
    (kernel,) = details([conv(["in", 0], (17, 16, 1, 1), odd, stride=2)], [IMAGE])
    assert kernel["columns_padded"] == pytest.approx(32 / 17) and kernel["channels_padded"] == 1.0
    assert kernel["inner_padded"] == 2.0 and kernel["stride"] == 4


def test_equal_kernels_are_counted_and_work_adds_up_over_kernels_borders_and_the_call() -> None:
    nodes = [relu(["in", 0], IMAGE)] + [relu(["node", i], IMAGE) for i in range(4)]
    table = features_of([task(nodes, [IMAGE])], Roofline())
    assert sorted(table.kernels.toarray()[0].tolist()) == [1, 1, 3]  # the first, the last, and those between
    inside = [i for i, name in enumerate(WORK_NAMES) if not name.startswith(("entry", "exit", "call", "view"))]
    assert (table.kernels @ table.kernel_work)[0, inside] == pytest.approx(table.work[0, inside])


def test_views_are_no_kernels() -> None:
    view = {"op": "relax.reshape", "attrs": {}, "args": [["in", 0]], "out": tensor(16, 64)}
    table = features_of([task([view], [IMAGE])], Roofline())
    assert table.kernels.shape == (1, 0)
    both = features_of([task([view], [IMAGE]), task([relu(["in", 0], IMAGE)], [IMAGE], "t")], Roofline())
    assert both.kernels.toarray().tolist() == [[0.0], [1.0]]


def test_trees_see_the_costliest_kernel_and_the_mean_of_all() -> None:
    work = np.zeros((1, len(WORK_NAMES)))
    analytic = Analytic(np.ones(work.shape[1]), np.ones(work.shape[1], dtype=bool))
    big, small = tensor(1, 1024, 64, 64), tensor(1, 16, 4, 4)
    view = {"op": "relax.reshape", "attrs": {}, "args": [["in", 0]], "out": tensor(1, 4194304)}
    nodes = [relu(["in", 0], big), relu(["in", 1], small)]
    tasks = [task(nodes, [big, small]), task([view], [big], "v"), task(nodes[1:], [big, small], "w")]
    inputs, _, _ = tree_inputs(analytic, features_of(tasks, Roofline()))
    assert inputs.shape == (3, COLUMNS) and np.isfinite(inputs).all()
    details_of_all = inputs[:, -2 * len(DETAIL_NAMES) - 1 :]
    assert details_of_all[0, len(DETAIL_NAMES) + DETAIL_NAMES.index("rows")] == pytest.approx(22, abs=0.01)
    assert 0.9 < details_of_all[0, -1] < 1.0 == details_of_all[2, -1]
    assert not details_of_all[1].any()


def test_recurrent_and_quantised_layers_are_matrix_products() -> None:
    """Opaque nodes: of a bucket of their own kind of work, or "other"."""
    node = {"op": "onnx.LSTM", "attrs": {"hidden_size": 8, "direction": "bidirectional"}, "out": tensor(6, 2, 2, 8)}
    facts = operator_facts(node, [tensor(6, 2, 5)], [tensor(2, 32, 5), tensor(2, 32, 8)])
    assert facts.cls == "matmul" and facts.flops == 2 * 12 * 32 * 13 * 2
    byte = [[1, 16, 8, 8], "uint8"]
    node = {"op": "onnx.QLinearConv", "attrs": {"group": 1}, "out": [[1, 32, 8, 8], "uint8"]}
    weights = [[[], "float32"], [[], "uint8"], [[32, 16, 3, 3], "int8"]]
    facts = operator_facts(node, [byte], weights)
    assert facts.cls == "convolution" and facts.flops == 2 * 64 * 32 * 16 * 9
    node = {"op": "onnx.NonMaxSuppression+", "attrs": {}, "out": [None, "int64"]}
    assert operator_facts(node, [tensor(1, 36, 4), tensor(1, 2, 36)], []).cls == "other"
    assert operator_class(["onnx.GRU", "relax.tanh"]) == "matmul"


def test_products_in_eight_bits_are_less_work() -> None:
    """Of arithmetic and weights, a quarter; nothing else changes, and the share of the arithmetic is a feature."""
    first = conv(["in", 0], (32, 16, 3, 3), tensor(1, 32, 8, 8))
    nodes = [first, relu(["node", 0], first["out"]), conv(["node", 1], (32, 32, 3, 3), first["out"])]
    labels = [(), (("int8", (0,)),), (("int8", (0, 2)),), (("int8", ()),)]
    table = features_of([task(nodes, [IMAGE], composites=each) for each in labels], Roofline())
    arithmetic, weights = (WORK_NAMES.index(f"convolution.{term}") for term in ("flops", "weight"))
    both = table.work[:, [arithmetic, weights]]
    assert both[1] == pytest.approx(both[0] * (1 / 3 / 4 + 2 / 3)) and both[2] == pytest.approx(both[0] / 4)
    others = [column for column in range(len(WORK_NAMES)) if column not in (arithmetic, weights)]
    assert (table.work[1:, others] == table.work[0, others]).all() and (table.work[3] == table.work[0]).all()
    share, flops = (table.totals[:, TOTAL_NAMES.index(name)] for name in ("composite_share", "total_flops"))
    total = 3 * (2 * 64 * 32 * 16 * 9)
    relus = 2 ** flops[0] - total
    assert share[1] == pytest.approx(total / 3 / (total + relus), rel=0.01) and 0.98 < share[2] < 1.0
    assert share[0] == share[3] == 0 and len(set(flops)) == 1
    assert table.roofline[2] < table.roofline[1] < table.roofline[0]
