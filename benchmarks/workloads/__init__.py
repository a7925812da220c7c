"""Workloads: the networks of the benchmark as seeded ONNX models, built without a framework or a download.

    model = build("resnet50")                  # an onnx.ModelProto, batch 1, static shapes, float32, opset 17
    model = build("resnet50", batch=8, dtype="float16")
    inputs = random_inputs(model, seed=1)      # name -> array

Inference form; batch normalisations are kept as nodes, for the frontend to fold. The command line is
`python -m benchmarks.workloads NAME -o FILE.onnx`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from onnx import ModelProto

from benchmarks.workloads.bert import bert_base, bert_tiny, minilm, tiny_bert
from benchmarks.workloads.densenet import densenet121
from benchmarks.workloads.efficientnet import efficientnet_b0
from benchmarks.workloads.gan import dcgan
from benchmarks.workloads.gpt import gpt2, gpt2_step
from benchmarks.workloads.inception import tiny_inception
from benchmarks.workloads.inputs import random_inputs
from benchmarks.workloads.mobilenet import mobilenet_v2, mobilenet_v2_035, tiny_mobilenet
from benchmarks.workloads.nasnet import nasnet_a_mobile
from benchmarks.workloads.resnet import resnet18, resnet50, resnet50_3d, resnext50_32x4d, tiny_resnet
from benchmarks.workloads.rnn import nasrnn
from benchmarks.workloads.shufflenet import shufflenet_v2_x1_0
from benchmarks.workloads.squeezenet import squeezenet1_1
from benchmarks.workloads.unet import unet
from benchmarks.workloads.vit import vit_b_16

__all__ = ["HELD_OUT", "MORE", "NAMES", "QUICK", "SMALL", "WORKLOADS", "build", "builders", "random_inputs"]

#: The networks of the benchmark, by name.
WORKLOADS: Mapping[str, Callable[..., ModelProto]] = MappingProxyType(
    {
        "resnet50": resnet50,
        "resnext50_32x4d": resnext50_32x4d,
        "mobilenet_v2": mobilenet_v2,
        "nasnet_a_mobile": nasnet_a_mobile,
        "bert_base": bert_base,
        "minilm": minilm,
        "dcgan": dcgan,
        "resnet50_3d": resnet50_3d,
        "nasrnn": nasrnn,
        "gpt2": gpt2,
    }
)

#: Networks that the paper does not have: of dense 3x3 convolutions without strides, a vision transformer, a step of
#: decoding; no part of the benchmark's goals.
MORE: Mapping[str, Callable[..., ModelProto]] = MappingProxyType(
    {"resnet18": resnet18, "unet": unet, "vit_b_16": vit_b_16, "gpt2_step": gpt2_step}
)

#: Networks for the referee alone. No cost model is trained on their candidates, and no threshold, schedule, rule or
#: other setting is chosen by a run of one of them; whoever needs a network for that takes another one.
HELD_OUT: Mapping[str, Callable[..., ModelProto]] = MappingProxyType(
    {
        "squeezenet1_1": squeezenet1_1,
        "shufflenet_v2_x1_0": shufflenet_v2_x1_0,
        "efficientnet_b0": efficientnet_b0,
        "densenet121": densenet121,
        "tiny_inception": tiny_inception,
    }
)

#: Networks that take less than a millisecond, where the overhead of a call counts (`benchmarks.small_networks`).
QUICK: Mapping[str, Callable[..., ModelProto]] = MappingProxyType(
    {"tiny_inception": tiny_inception, "mobilenet_v2_035": mobilenet_v2_035, "bert_tiny": bert_tiny}
)

#: Small relatives of the first ten, for tests that have to be quick; no part of the benchmark.
SMALL: Mapping[str, Callable[..., ModelProto]] = MappingProxyType(
    {"tiny_resnet": tiny_resnet, "tiny_mobilenet": tiny_mobilenet, "tiny_bert": tiny_bert}
)

NAMES: tuple[str, ...] = tuple(WORKLOADS)


def build(name: str, **options: Any) -> ModelProto:
    """The network called `name`.

    `options`: `batch` (1), `seed` (0) of the weights, `dtype` ("float32", "float16" or "bfloat16"), `sequence` of the
    transformers.

    Raises
    ------
    ValueError
        No workload has this name; the message lists those there are.
    """
    known = builders()
    if name not in known:
        raise ValueError(f"unknown workload {name!r}; there are {', '.join(known)}")
    return known[name](**options)


def builders() -> dict[str, Callable[..., ModelProto]]:
    """All networks by name: what makes each of them."""
    return {**WORKLOADS, **MORE, **HELD_OUT, **QUICK, **SMALL}
