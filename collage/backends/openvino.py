"""OpenVINO on the CPU: a graph-style backend fed through ONNX.

The CPU plug-in computes int64 in int32. Tensors of that dtype are taken where that cannot change a result: as indices,
in comparisons and selections, and in additions of small constants (the engine checks the range of the inputs).
"""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import tvm
from tvm import relax

from collage.backends.base import Availability, Backend, Style
from collage.backends.onnx_export import export_onnx, unsupported_reason

if TYPE_CHECKING:
    from collage.graph.dataflow_graph import DataflowNode
    from collage.rules.base import PartitionRule

#: Operators whose int64 results are among their int64 operands, or which give none.
_INT64_SAFE = frozenset(
    f"relax.{name}"
    for name in (
        *("reshape", "flatten", "squeeze", "expand_dims", "permute_dims", "broadcast_to", "repeat", "tile", "flip"),
        *("strided_slice", "concat", "stack", "split", "take", "gather_elements", "gather_nd", "where", "maximum"),
        *("minimum", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "one_hot", "tril", "triu"),
        *("full", "full_like", "zeros", "zeros_like", "ones", "ones_like", "arange", "argmax", "argmin", "max"),
        *("min", "scatter_elements", "scatter_nd", "nn.batch_flatten"),
    )
)
_INT64_SUMS = frozenset({"relax.add", "relax.subtract"})
#: With inputs up to 2**30, a thousand additions of constants up to this stay within int32.
_SMALL = 2**20


class OpenVINOBackend(Backend):
    """Regions of operators run by OpenVINO's CPU plug-in, in float32."""

    name: ClassVar[str] = "openvino"
    style: ClassVar[Style] = "graph"
    priority: ClassVar[int] = 10

    def availability(self) -> Availability:
        if find_spec("openvino") is None:
            return Availability(False, "openvino is not installed: `pip install collage-tvm[openvino]`")
        return Availability(True)

    def version(self) -> str:
        return version("openvino")

    def rule(self) -> PartitionRule:
        from collage.rules.trees import graph_rule

        return graph_rule(supports)

    def engine_blob(self, function: Any) -> bytes:
        """The partition as a serialised ONNX model."""
        blob: bytes = export_onnx(function, name=str(function.attrs["global_symbol"])).SerializeToString()
        return blob


def supports(node: DataflowNode) -> bool:
    """Whether OpenVINO runs a node with the results that TVM gives."""
    return unsupported_by_openvino(node) is None


def unsupported_by_openvino(node: Any) -> str | None:
    """Why OpenVINO does not take a node (or a Relax expression); None when it does."""
    expr = getattr(node, "expr", node)
    return unsupported_reason(expr) or _order_reason(expr) or _int64_reason(expr)


def _order_reason(expr: Any) -> str | None:
    """Among equal elements TVM keeps the order; OpenVINO's TopK does not, which shows in the indices."""
    name = expr.op.name if isinstance(expr, relax.Call) else ""
    if name == "relax.argsort" or (name == "relax.topk" and str(expr.attrs.ret_type) != "values"):
        return f"{name}: OpenVINO orders equal elements at random"
    return None


def _int64_reason(expr: Any) -> str | None:
    if not isinstance(expr, relax.Call):
        return None
    name, operands = expr.op.name, list(expr.args)
    touched = [ty for value in (*operands, expr) for ty in _tensor_types(value.ty)]
    if not any(str(ty.dtype) == "int64" for ty in touched):
        return None
    constants = [value for value in operands if isinstance(value, tvm.ir.GenericConst)]
    limit = _SMALL if name in _INT64_SUMS else np.iinfo(np.int32).max
    if any(_magnitude(constant) > limit for constant in constants):
        return f"{name}: OpenVINO computes int64 in int32, and a constant is beyond ±{limit}"
    if name in _INT64_SAFE or (name in _INT64_SUMS and constants):
        return None
    if name == "relax.astype" and str(operands[0].ty.dtype) in ("int32", "bool", "uint8", "int8", "int64"):
        return None
    return f"{name}: OpenVINO computes int64 in int32, which may overflow"


def _tensor_types(ty: Any) -> list[Any]:
    fields = list(ty.fields) if isinstance(ty, relax.TupleType) else [ty]
    return [field for field in fields if isinstance(field, relax.TensorType)]


def _magnitude(constant: Any) -> int:
    """Largest magnitude in an int64 constant; 0 for constants of another dtype."""
    if str(constant.ty.dtype) != "int64":
        return 0
    values = np.from_dlpack(constant.value)
    return max(int(values.max()), -int(values.min()), 0)
