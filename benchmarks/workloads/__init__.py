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

from benchmarks.workloads.bert import bert_base, minilm, tiny_bert
from benchmarks.workloads.gan import dcgan
from benchmarks.workloads.gpt import gpt2
from benchmarks.workloads.inputs import random_inputs
from benchmarks.workloads.mobilenet import mobilenet_v2, tiny_mobilenet
from benchmarks.workloads.nasnet import nasnet_a_mobile
from benchmarks.workloads.resnet import resnet18, resnet50, resnet50_3d, resnext50_32x4d, tiny_resnet
from benchmarks.workloads.rnn import nasrnn
from benchmarks.workloads.unet import unet

__all__ = ["MORE", "NAMES", "SMALL", "WORKLOADS", "build", "random_inputs"]

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

#: Networks that the paper does not have: of dense 3x3 convolutions without strides; no part of the benchmark's goals.
MORE: Mapping[str, Callable[..., ModelProto]] = MappingProxyType({"resnet18": resnet18, "unet": unet})

#: Small relatives of them, for tests that have to be quick; no part of the benchmark.
SMALL: Mapping[str, Callable[..., ModelProto]] = MappingProxyType(
    {"tiny_resnet": tiny_resnet, "tiny_mobilenet": tiny_mobilenet, "tiny_bert": tiny_bert}
)

NAMES: tuple[str, ...] = tuple(WORKLOADS)


def build(name: str, **options: Any) -> ModelProto:
    """The workload, further network or small relative called `name`.

    `options`: `batch` (1), `seed` (0) of the weights, `dtype` ("float32" or "float16"), `sequence` of the transformers.

    Raises
    ------
    ValueError
        No workload has this name; the message lists those there are.
    """
    builders = {**WORKLOADS, **MORE, **SMALL}
    if name not in builders:
        raise ValueError(f"unknown workload {name!r}; there are {', '.join(builders)}")
    return builders[name](**options)
