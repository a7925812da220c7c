"""Convolutional networks in half precision with their channels last: the layout that tensor cores want.

cuDNN's and CUTLASS's kernels for them read NHWC; for NCHW cuDNN transposes inside, call by call, and CUTLASS has none.
Inputs and outputs of the network stay as they are. (TVM's own `ConvertLayout` stops at clips, pads and slices, and at
what follows them: 37 transpositions are left in NASNet, 70 in MobileNet, where these rules leave one.)
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from collage.frontend.passes.canonical import canonicalise
from collage.frontend.passes.layout_rules import CHANNELS_LAST, PLANES, lies_in, rank_of, rules, with_layout
from collage.frontend.passes.precision import HALF
from collage.frontend.passes.rewriting import bindings, call_to, rewrite
from collage.frontend.passes.simplify import SIMPLIFICATIONS
from collage.frontend.values import dtype_of, output_specs, static_shape

_CONVOLUTIONS = ("relax.nn.conv2d", "relax.nn.conv3d")
#: Transpositions that may be left inside, per convolution: more of them cost what the layout gains.
_MOST_LEFT = 0.25


def channels_last(module: tvm.IRModule) -> tvm.IRModule:
    """A canonical module whose half-precision convolutions have their channels last; the module itself where it has
    none, or where too many transpositions would be left between them.
    """
    count = sum(_is_wanted(value) for _, value in bindings(module["main"]))
    if not count:
        return module
    converted = canonicalise(module, rules(CHANNELS_LAST, _is_wanted))
    ends = len(module["main"].params) + len(output_specs(module))
    added = _transpositions(converted) - _transpositions(module)
    return converted if added <= ends + _MOST_LEFT * count else module


def in_planes(function: relax.Function) -> relax.Function:
    """A function with every convolution and pool in planes, for exporters that know no other layout."""
    changed = any(lies_in(value, CHANNELS_LAST) for _, value in bindings(function))
    while changed:
        function, changed = rewrite(function, (*rules(PLANES, lambda value: True), *SIMPLIFICATIONS))
        function = relax.analysis.remove_all_unused(function)
    return function


def in_planes_alone(value: Any) -> Any:
    """A call as `in_planes` would make it, on other operands; the call itself where it has no layout."""
    if not lies_in(value, CHANNELS_LAST):
        return value
    axes = PLANES.toward(rank_of(value))
    operands = []
    for tensor in value.args:
        shape = static_shape(tensor.ty) or ()
        operands.append(relax.Var("operand", relax.TensorType([shape[axis] for axis in axes], tensor.ty.dtype)))
    return relax.BlockBuilder().normalize(with_layout(value, operands, PLANES))


def _is_wanted(value: Any) -> bool:
    return lies_in(value, PLANES) and call_to(value, *_CONVOLUTIONS) and dtype_of(value.args[0].ty) in HALF


def _transpositions(module: tvm.IRModule) -> int:
    return sum(call_to(value, "relax.permute_dims") for _, value in bindings(module["main"]))
