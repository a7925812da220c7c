"""TensorRT: a graph-style backend fed through ONNX, against the Python API of TensorRT 10.

Networks are strongly typed: a tensor is computed in the type that the network gives it, and TensorRT chooses among
kernels, not among precisions. An engine is built once per partition and device and kept in a folder
(`collage.runtime.engines.tensorrt`); the blob of a partition carries it beside the ONNX model where it is there
already, so that a compiled model starts with the very kernels that were measured, and without a build.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, ClassVar

from tvm import relax

from collage.backends.base import Availability
from collage.backends.cuda.base import NO_DEVICE
from collage.backends.cuda.onnx import CudaOnnxBackend
from collage.backends.onnx.half_precision import refusal, tensor_dtypes
from collage.runtime.devices import cuda_exists

#: Distributions that hold the module `tensorrt`, by the major version of CUDA.
_PACKAGES = ("tensorrt", "tensorrt-cu13", "tensorrt-cu12")
_MAJOR = 10
#: Tensors of these types cross the border; of int8 and uint8 a strongly typed network makes quantised ones.
_DTYPES = frozenset(("float32", "float16", "int64", "int32", "bool"))
_FLOATS = frozenset(("float32", "float16"))
#: What TensorRT's ONNX parser takes of any of those types.
_MOVEMENT = frozenset(
    f"relax.{name}"
    for name in (
        *("reshape", "flatten", "squeeze", "expand_dims", "permute_dims", "broadcast_to", "repeat"),
        *("strided_slice", "concat", "stack", "split", "take", "gather_elements", "gather_nd", "where"),
        *("nn.batch_flatten", "astype", "equal", "less", "less_equal", "greater", "greater_equal", "not_equal"),
    )
)
#: Of floating-point numbers only.
_FLOATING = frozenset(
    f"relax.{name}"
    for name in (
        *("nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose"),
        *("nn.max_pool2d", "nn.max_pool3d", "nn.avg_pool2d", "nn.avg_pool3d", "nn.adaptive_avg_pool2d", "nn.pad"),
        *("matmul", "linear", "einsum", "nn.softmax", "nn.log_softmax", "nn.layer_norm", "nn.instance_norm"),
        *("nn.group_norm", "nn.rms_norm", "nn.batch_norm", "image.resize2d"),
        *("nn.relu", "nn.leakyrelu", "nn.prelu", "nn.gelu", "nn.gelu_tanh", "nn.silu", "nn.softplus", "clip"),
        *("sigmoid", "tanh", "erf", "exp", "log", "sqrt", "rsqrt", "abs", "negative", "ceil", "floor", "sin", "cos"),
        *("add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "square"),
        *("sum", "mean", "max", "min", "prod", "variance"),
    )
)


class TensorRTBackend(CudaOnnxBackend):
    """Regions of operators run by engines that TensorRT builds.

    Parameters
    ----------
    precision
        Of float32 products: "float32", or "tf32" with operands rounded to ten bits.
    workspace
        Bytes of device memory that a kernel may use at most.
    """

    name: ClassVar[str] = "tensorrt"
    priority: ClassVar[int] = 10

    def __init__(self, precision: str = "float32", workspace: int = 1 << 30) -> None:
        super().__init__(precision)
        self.workspace = workspace

    def availability(self) -> Availability:
        found = installed_version()
        if find_spec("tensorrt") is None or found is None:
            return Availability(
                False, "tensorrt is not installed: `pip install tensorrt` (the libraries come from NVIDIA's own index)"
            )
        if int(found.partition(".")[0]) < _MAJOR:
            return Availability(False, f"tensorrt is {found}: version {_MAJOR} or later is needed")
        if not cuda_exists():
            return NO_DEVICE
        return Availability(True)

    def version(self) -> str:
        return installed_version() or ""

    def refusal(self, node: Any) -> str | None:
        return unsupported_by_tensorrt(node)

    def configuration(self) -> dict[str, Any]:
        """Precision and workspace."""
        return self._build_options()

    def engine_blob(self, function: Any) -> bytes:
        """The partition as a serialised ONNX model, and the engine that was built of it, if there is one."""
        from collage.runtime.engines import tensorrt

        proto = self.export(function)
        model = proto.SerializeToString(deterministic=True)
        built_for, engine = tensorrt.kept_engine(model, self._build_options())
        inputs, outputs = (tuple(v.name for v in values) for values in (proto.graph.input, proto.graph.output))
        return tensorrt.Blob(inputs, outputs, model, engine, built_for).pack()

    def engine_options(self, threads: int) -> dict[str, Any]:
        return {"threads": threads, **self._build_options()}

    def _build_options(self) -> dict[str, Any]:
        return {"tf32": self.checked_precision() == "tf32", "workspace": self.workspace}


def unsupported_by_tensorrt(node: Any) -> str | None:
    """Why TensorRT does not take a node (or a Relax expression); None when it does."""
    expr = getattr(node, "expr", node)
    if not isinstance(expr, relax.Call):
        return refusal(expr)
    name = getattr(expr.op, "name", str(expr.op))
    operands = {dtype for operand in expr.args for dtype in tensor_dtypes(getattr(operand, "ty", None))}
    dtypes = operands | set(tensor_dtypes(expr.ty))
    if not dtypes <= _DTYPES:
        return f"{name}: dtype {', '.join(sorted(dtypes - _DTYPES))}"
    if name not in _MOVEMENT and name not in _FLOATING:
        return f"{name}: not among the operators that TensorRT is given"
    if name in _FLOATING and not dtypes <= _FLOATS:
        return f"{name}: integers"
    return refusal(expr)


def installed_version() -> str | None:
    """The version of the installed distribution; None when there is none."""
    for package in _PACKAGES:
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return None
