"""OpenVINO on the CPU: a graph-style backend fed through ONNX.

The CPU plug-in computes int64 in int32. Tensors of that dtype are taken where that cannot change a result: as indices,
in comparisons and selections, and in additions of small constants (the engine checks the range of the inputs).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import tvm
from tvm import relax

from collage.annotations.opaque import function_of, is_opaque, makes_narrow, opaque_name, tensors_of
from collage.annotations.precision import FLOAT32
from collage.backends.onnx.attention_masks import computed_masks
from collage.backends.onnx.base import OnnxBackend
from collage.backends.onnx.export import export_onnx, unsupported_reason
from collage.backends.onnx.export.conversion import DTYPES
from collage.errors import CompiledModelError, last_line
from collage.runtime import engines
from collage.runtime.device_info import describe_device

if TYPE_CHECKING:
    from onnx import ModelProto

_MOVEMENT = tuple(
    f"relax.{name}"
    for name in (
        *("reshape", "flatten", "squeeze", "expand_dims", "permute_dims", "broadcast_to", "repeat", "tile", "flip"),
        *("strided_slice", "concat", "stack", "split", "take", "gather_elements", "gather_nd", "where", "one_hot"),
        *("scatter_elements", "scatter_nd", "nn.batch_flatten", "tril", "triu", "full", "full_like", "zeros"),
        *("zeros_like", "ones", "ones_like", "arange", "argmax", "argmin", "astype"),
    )
)
_COMPARISON = tuple(f"relax.{n}" for n in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"))
_SUMS = ("relax.add", "relax.subtract")
_EXTREMA = ("relax.maximum", "relax.minimum")
#: What the plug-in computes exactly in int32; the rest (division, clipping, reductions, ...) it computes in float32.
_INT32 = frozenset(
    (
        *(*_MOVEMENT, *_COMPARISON, *_SUMS, *_EXTREMA, "relax.multiply", "relax.abs", "relax.negative", "relax.square"),
        *("relax.bitwise_and", "relax.bitwise_or", "relax.bitwise_xor"),
    )
)
#: What cannot leave int32 when it starts from int64 values within it.
_INT64 = frozenset((*_MOVEMENT, *_COMPARISON, *_EXTREMA))
#: Opaque operators that take int64 only to count or to place.
_OPAQUE_INT64 = frozenset(("NonMaxSuppression", "OneHot", "GatherND", "Compress", "Trilu", "Unique"))
#: Opaque operators that OpenVINO compiles, and gives other numbers for: shifts that overflow or are negative, a changed
#: axis, antialiasing, sizes that keep the aspect ratio (one of which frees memory twice), a second scanned value, the
#: other order of channels, and an LSTM of eight bits at an error of 8% (docs/OPERATORS.md).
_OPAQUE_WRONG = frozenset(("BitShift", "DFT", "Resize", "Scan", "SpaceToDepth", "DynamicQuantizeLSTM"))
#: Up to here float32 holds every integer.
_FLOAT_EXACT = 2**24
#: With inputs up to 2**30, a thousand additions of constants up to this stay within int32.
_SMALL = 2**20


class OpenVINOBackend(OnnxBackend):
    """Regions of operators run by OpenVINO's CPU plug-in, in float32."""

    name: ClassVar[str] = "openvino"
    priority: ClassVar[int] = 10
    distribution: ClassVar[str] = "openvino"
    int8_every: ClassVar[bool] = True

    @property
    def int8_signed(self) -> bool:
        """With AMX, which multiplies int8 by int8: SqueezeNet and MobileNetV2 take 8% more without."""
        return "amx_int8" in describe_device("cpu").features

    def refusal(self, node: Any) -> str | None:
        return unsupported_by_openvino(node)

    def export(self, function: Any) -> ModelProto:
        model = super().export(function)
        lower = self.precision != FLOAT32 or any(node.op_type == "QuantizeLinear" for node in model.graph.node)
        return computed_masks(model) if lower else model


def unsupported_by_openvino(node: Any) -> str | None:
    """Why OpenVINO does not take a node (or a Relax expression); None when it does."""
    expr = getattr(node, "expr", node)
    reason = unsupported_reason(expr)
    if reason is not None or not isinstance(expr, relax.Call):
        return reason
    if is_opaque(expr):
        return _opaque_reason(expr)
    refusal = _float_reason(expr, getattr(node, "reads_finite", False)) or _integer_reason(expr)
    return f"{expr.op.name}: {refusal}" if refusal else None


def _float_reason(call: Any, reads_finite: bool) -> str | None:
    name = call.op.name
    if name == "relax.argsort" or (name == "relax.topk" and str(call.attrs.ret_type) != "values"):
        return "OpenVINO puts equal elements in any order"
    if name == "relax.mod":
        return "OpenVINO computes remainders by division, which is inexact for large quotients"
    if name in ("relax.max", "relax.min") and not reads_finite:
        return "OpenVINO gives the largest finite number where all elements are infinite"
    return None


def _integer_reason(call: Any) -> str | None:
    name, operands = call.op.name, list(call.args)
    dtypes = {str(ty.dtype) for value in (*operands, call) for ty in _tensor_types(value.ty)}
    if name == "relax.take" and str(call.attrs.mode) != "fast" and max(_extents(operands[0].ty)) > _FLOAT_EXACT:
        return f"OpenVINO limits indices in float32, and an extent is beyond {_FLOAT_EXACT}"
    if "int64" not in dtypes:
        return "OpenVINO computes it in float32" if "int32" in dtypes and name not in _INT32 else None
    constants = [value for value in operands if isinstance(value, tvm.ir.GenericConst)]
    limit = _SMALL if name in _SUMS else np.iinfo(np.int32).max
    if any(_magnitude(constant) > limit for constant in constants):
        return f"OpenVINO computes int64 in int32, and a constant is beyond ±{limit}"
    if name == "relax.astype" and str(operands[0].ty.dtype) == "float32":
        return "OpenVINO converts to int32 instead of int64"
    if name in _INT64 or (name in _SUMS and constants):
        return None
    return "OpenVINO computes int64 in int32, which may overflow"


def _opaque_reason(call: Any) -> str | None:
    """OpenVINO is asked by compiling the node alone; its answers are kept."""
    name = opaque_name(call)
    types = [ty for value in (*tensors_of(call), call) for ty in _tensor_types(value.ty)]
    for ty in types:
        if not isinstance(ty.shape, relax.ShapeExpr):
            return f"{name}: the shape of a result depends on data"
        if str(ty.dtype) not in DTYPES:
            return f"{name}: dtype {ty.dtype}"
    if makes_narrow(function_of(call).node):
        return f"{name}: a value inside is of eight bits or less"
    operators = {node.op_type for node in function_of(call).node}
    if wrong := operators & _OPAQUE_WRONG:
        return f"{name}: OpenVINO gives other numbers for {', '.join(sorted(wrong))}"
    given = [str(o.ty.dtype) for o in tensors_of(call) if not isinstance(o, tvm.ir.GenericConst)]
    if "int64" in given and not operators <= _OPAQUE_INT64:
        return f"{name}: OpenVINO computes int64 in int32, which may overflow"
    model = export_onnx(_alone(call), name="part").SerializeToString()
    reason = _compiled(model)
    return f"{name}: {reason}" if reason else None


def _alone(call: Any) -> Any:
    """A function of one call."""
    parameters = list(dict.fromkeys(o for o in tensors_of(call) if isinstance(o, relax.Var)))
    fresh = {parameter: relax.Var(f"p{i}", parameter.ty) for i, parameter in enumerate(parameters)}
    builder = relax.BlockBuilder()
    with builder.function("main", list(fresh.values())):
        with builder.dataflow():
            value = builder.emit(relax.Call(call.op, [fresh.get(a, a) for a in call.args], call.attrs, call.ty_args))
            fields = [relax.TupleGetItem(value, i) for i in range(len(_tensor_types(call.ty)))]
            tupled = isinstance(call.ty, relax.TupleType)
            result = builder.emit_output(relax.Tuple([builder.emit(f) for f in fields]) if tupled else value)
        builder.emit_func_output(result)
    return builder.get()["main"]


@lru_cache(maxsize=1024)
def _compiled(model: bytes) -> str:
    """Why OpenVINO does not compile a model; "" when it does."""
    try:
        engines.create("openvino", model, {"threads": 1})
    except CompiledModelError as error:
        return last_line(error)
    return ""


def _tensor_types(ty: Any) -> list[Any]:
    fields = list(ty.fields) if isinstance(ty, relax.TupleType) else [ty]
    return [field for field in fields if isinstance(field, relax.TensorType)]


def _extents(ty: Any) -> list[int]:
    return [1, *(int(extent) for extent in ty.shape.values)]


def _magnitude(constant: Any) -> int:
    """Largest magnitude in an int64 constant; 0 for constants of another dtype."""
    if str(constant.ty.dtype) != "int64":
        return 0
    values = np.from_dlpack(constant.value)
    return max(int(values.max()), -int(values.min()), 0)
