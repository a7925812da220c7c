"""cuBLASLt: matrix products with what their epilogues compute, after TVM's BYOC backend of this name.

Beyond TVM's table of patterns (`tvm.relax.backend.cuda.cublas`): the left operand and the result may be permuted too,
which takes in the transpositions of heads around attention's products; a residual may be added; a scalar factor is
alpha. Every part of an epilogue makes another candidate, and the search decides where fusion pays. cuBLASLt's GELU is
the tanh form, so `relax.nn.gelu`, the erf form, is left to others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

from collage.backends.composite import Composite, Operands, dtype_of
from collage.backends.cuda.base import CudaLibraryBackend
from collage.backends.cuda.matmul_chain import MatmulChain, read_chain
from collage.backends.source_digest import source_digest
from collage.errors import CodegenError

if TYPE_CHECKING:
    from collage.rules.base import PartitionRule
    from collage.rules.pattern_rule import PatternMatch

#: (dtype of the operands, dtype of the result).
_DTYPES = frozenset((d, d) for d in ("float32", "float16", "bfloat16"))


class CublasBackend(CudaLibraryBackend):
    """Matrix products, one pattern each, run by cuBLASLt."""

    name: ClassVar[str] = "cublas"
    priority: ClassVar[int] = 12
    library: ClassVar[str] = "libcublasLt.so.13"
    version_function: ClassVar[str] = "cublasLtGetVersion"

    def rule(self) -> PartitionRule:
        from collage.rules.trees import library_rule

        return library_rule([(label, pattern, _check(label)) for label, pattern in patterns().items()])

    def configuration(self) -> dict[str, Any]:
        """Precision, and patterns and engine as a digest of their code."""
        code = source_digest(
            *("backends/cuda/cublas.py", "backends/cuda/matmul_*.py", "backends/composite.py"),
            *("runtime/blob.*", "runtime/cuda/partition.h", "runtime/cuda/cublas*", "runtime/engines/cublas.py"),
        )
        return {"code": code, "precision": self.checked_precision()}

    def engine_blob(self, function: Any) -> bytes:
        """The product in numbers, and its weights; see `collage/runtime/cuda/cublas.cc`."""
        composite = Composite.of(function)
        return self.with_known_choice(matmul_blob(composite, read_chain(composite.bound), self.precision))


def patterns() -> dict[str, Any]:
    """Label -> `tvm.relax.dpl` pattern of everything that is taken."""
    from tvm.relax.dpl import is_const, is_op, wildcard

    def operand() -> Any:
        value = wildcard()
        return value | is_op("relax.permute_dims")(value)

    def product() -> Any:
        return is_op("relax.matmul")(operand(), operand())

    def biased() -> Any:
        """A bias along the last axis, before or after the result is given another shape."""
        return is_op("relax.add")(reshaped(product()), wildcard())

    def reshaped(value: Any) -> Any:
        return value | is_op("relax.reshape")(value, wildcard())

    def residual(value: Any) -> Any:
        return is_op("relax.add")(reshaped(value), wildcard())

    def relu(value: Any) -> Any:
        return is_op("relax.nn.relu")(value)

    def gelu(value: Any) -> Any:
        """The operator, or its formula with a cube as power, as frameworks export it."""
        multiply, add = is_op("relax.multiply"), is_op("relax.add")
        cube = multiply(is_op("relax.power")(value, is_const()), is_const())
        inner = is_op("relax.tanh")(multiply(add(value, cube), is_const()))
        formula = multiply(multiply(value, is_const()), add(inner, is_const()))
        return is_op("relax.nn.gelu_tanh")(value) | formula

    def scaled(value: Any) -> Any:
        return is_op("relax.multiply")(value, is_const()) | is_op("relax.divide")(value, is_const())

    table: Mapping[str, Callable[[], Any]] = {
        "matmul": product,
        "matmul_scale": lambda: scaled(product()),
        "matmul_permute": lambda: is_op("relax.permute_dims")(product()),
        "matmul_relu": lambda: relu(reshaped(product())),
        "matmul_gelu": lambda: gelu(reshaped(product())),
        "matmul_bias": biased,
        "matmul_bias_relu": lambda: relu(reshaped(biased())),
        "matmul_bias_gelu": lambda: gelu(reshaped(biased())),
        "matmul_residual": lambda: residual(product()),
        "matmul_residual_relu": lambda: relu(residual(product())),
        "matmul_bias_residual": lambda: residual(biased()),
        "matmul_bias_residual_relu": lambda: relu(residual(biased())),
    }
    return {f"cublas.{label}": make() for label, make in table.items()}


def _check(label: str) -> Callable[[PatternMatch], bool]:
    def check(match: PatternMatch) -> bool:
        nodes = [match.graph.nodes[index] for index in match.inside]
        try:
            chain = read_chain({node.var: node.expr for node in nodes})
        except CodegenError:
            return False
        # With one row a bias is as large as the result: it is a bias then, and no residual.
        return f"cublas.{chain.label}" == label and (dtype_of(chain.lhs), dtype_of(match.root.expr)) in _DTYPES

    return check


def matmul_blob(composite: Composite, chain: MatmulChain, precision: str) -> bytes:
    """The blob of a product.

    Raises
    ------
    CodegenError: an operand is neither an argument nor a weight.
    """
    operands, layout = Operands(composite), chain.layout
    header: dict[str, Any] = {
        "op": "matmul",
        "label": composite.label,
        "m": layout.m,
        "n": layout.n,
        "k": layout.k,
        "batch": layout.batch,
        "dtype": dtype_of(chain.lhs),
        "out_dtype": dtype_of(composite.result),
        "precision": precision,
        "alpha": float(chain.alpha),
        "activation": chain.activation,
        "lhs": {"at": operands.reference(chain.lhs), **asdict(layout.lhs)},
        "rhs": {"at": operands.reference(chain.rhs), **asdict(layout.rhs)},
        "output": {"at": operands.output(), **asdict(layout.output)},
        "offsets": [list(triple) for triple in layout.offsets],
    }
    for key, value in (("bias", chain.bias), ("residual", chain.residual)):
        if value is not None:
            header[key] = operands.reference(value)
    return operands.blob(header)
