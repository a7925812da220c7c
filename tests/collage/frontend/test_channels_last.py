"""Half-precision convolutions with their channels last: the same numbers, and no transpositions between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from relax_networks import Emit, called, network
from tvm import relax

from benchmarks.workloads import build
from collage.frontend import input_specs, load, output_specs
from collage.frontend.passes.device import for_device
from collage.frontend.passes.layout import channels_last, in_planes, in_planes_alone
from collage.frontend.passes.rewriting import bindings, call_to
from collage.graph.from_relax import read_graph
from collage.measure.reference import ReferenceRun

op, nn = relax.op, relax.op.nn
RNG = np.random.default_rng(0)


def weight(*shape: int) -> Any:
    return relax.const((RNG.standard_normal(shape) / 4).astype("float16"))


def cell(emit: Emit, x: Any) -> Any:
    """What NASNet's cells are made of: uneven pads, pools of them, slices, products, branches that are joined."""
    y = emit(nn.relu(emit(nn.conv2d(x, weight(8, 3, 3, 3), padding=(1, 1)))))
    padded = emit(nn.pad(y, [0, 0, 0, 0, 1, 0, 0, 1], "constant", 0.0))
    most = emit(nn.max_pool2d(padded, (3, 3), (2, 2)))
    mean = emit(op.multiply(emit(nn.avg_pool2d(padded, (3, 3), (2, 2))), weight(1, 8, 1, 1)))
    cut = emit(op.strided_slice(y, [2, 3], [1, 1], [10, 10]))
    small = emit(nn.avg_pool2d(cut, (1, 1), (2, 2)))
    joined = emit(op.concat([emit(op.add(most, mean)), small], 1))
    last = emit(op.clip(emit(nn.conv2d(joined, weight(6, 16, 1, 1))), 0.0, 1.0))
    return last, emit(op.mean(last, [2, 3], False)), emit(op.mean(last, [1], True))


def volume(emit: Emit, x: Any) -> Any:
    y = emit(nn.conv3d(x, weight(8, 2, 3, 3, 3), padding=(1, 1, 1), groups=2))
    y = emit(nn.silu(emit(op.add(y, weight(1, 8, 1, 1, 1)))))
    return op.mean(emit(nn.max_pool3d(y, (2, 2, 2), (2, 2, 2))), [2, 3, 4], True)


NETWORKS: dict[str, Callable[[], Any]] = {
    "residual": lambda: load(build("tiny_resnet", dtype="float16")),
    "depthwise": lambda: load(build("tiny_mobilenet", dtype="float16")),
    "cell": lambda: network(cell, 2, 3, 10, 10, dtype="float16"),
    "volume": lambda: network(volume, 1, 4, 4, 6, 6, dtype="float16"),
}


def layouts(module: Any) -> set[str]:
    calls = [value for _, value in bindings(module["main"])]
    found = {str(call.attrs.data_layout) for call in calls if call_to(call, "relax.nn.conv2d", "relax.nn.conv3d")}
    return found | {str(call.attrs.layout) for call in calls if "pool" in str(getattr(call, "op", ""))}


@pytest.mark.parametrize("name", NETWORKS)
def test_transpositions_are_left_at_the_ends_only_and_the_numbers_stay(name: str) -> None:
    module = NETWORKS[name]()
    converted = channels_last(module)
    assert layouts(converted) == {"NDHWC" if name == "volume" else "NHWC"}
    assert (input_specs(converted), output_specs(converted)) == (input_specs(module), output_specs(module))
    # One before the first convolution, one before each result that has planes; where there is one channel, a reshape.
    ends = {"cell": Counter({"permute_dims": 2, "reshape": 1})}
    ends["volume"] = Counter({"permute_dims": 1, "reshape": 1})
    assert called(converted) - called(module) == ends.get(name, Counter({"permute_dims": 1}))
    assert called(module) - called(converted) == Counter()
    assert channels_last(converted) is converted
    runs = [ReferenceRun(m, read_graph(m), 1) for m in (module, converted)]
    for before, after in zip(runs[0].outputs, runs[1].outputs, strict=True):
        np.testing.assert_allclose(after.astype("float64"), before.astype("float64"), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", NETWORKS)
def test_in_planes_it_is_the_network_that_it_was(name: str) -> None:
    module = NETWORKS[name]()
    converted = channels_last(module)
    back = converted.clone()
    back["main"] = in_planes(converted["main"])
    assert called(back) == called(module) and layouts(back) == layouts(module)
    calls = [value for _, value in bindings(converted["main"]) if call_to(value, "relax.nn.conv2d", "relax.nn.conv3d")]
    assert all(str(in_planes_alone(call).attrs.data_layout).startswith("NC") for call in calls)


def between_rows(emit: Emit, x: Any) -> Any:
    """A convolution, and something over the channels that has no rule, by turns."""
    for _ in range(4):
        x = emit(nn.softmax(emit(nn.conv2d(x, weight(4, 4, 1, 1))), 1))
    return x


def test_networks_that_would_be_transposed_all_the_way_stay_as_they_are() -> None:
    module = network(between_rows, 1, 4, 6, 6, dtype="float16")
    assert channels_last(module) is module


def test_only_half_precision_on_a_cuda_device_is_converted() -> None:
    half, single = (load(build("tiny_resnet", dtype=dtype)) for dtype in ("float16", "float32"))
    assert for_device(single, "cuda") is single and for_device(half, "cpu") is half
    assert layouts(for_device(half, "cuda")) == {"NHWC"}
    transposed = load(build("dcgan", dtype="float16"))
    assert for_device(transposed, "cuda") is transposed  # TVM computes transposed convolutions in planes only
