"""Matrix products with what libraries compute along with them, as labelled patterns; and their blobs.

Every part of an epilogue makes another candidate, and the search decides where fusion pays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from collage.backends.library.activation import gelu_spellings, gelu_tanh_spellings
from collage.backends.library.composite import Composite, Operands, dtype_of
from collage.backends.library.matmul.chain import MatmulChain, read_chain
from collage.errors import CodegenError

if TYPE_CHECKING:
    from collage.rules.pattern_rule import PatternMatch

Pattern = tuple[str, Any, "Callable[[PatternMatch], bool]"]


def matmul_patterns(prefix: str, dtypes: Sequence[str], *, erf_dtypes: Sequence[str]) -> list[Pattern]:
    """(label, pattern, check) for `library_rule`, of every part of an epilogue that a product can have.

    Parameters
    ----------
    prefix
        Of the labels: the backend's name.
    dtypes
        Of operands and results.
    erf_dtypes
        Of these, the ones in which the library has GELU by the error function, and not the tanh form only.
    """
    return [
        (f"{prefix}.{label}", pattern, _check(label, frozenset((dtype, dtype) for dtype in taken)))
        for label, pattern in _patterns().items()
        if (taken := erf_dtypes if label.endswith("_erf") else dtypes)
    ]


def _patterns() -> dict[str, Any]:
    """What comes after "<backend>." in a label -> `tvm.relax.dpl` pattern."""
    from tvm.relax.dpl import is_const, is_op, wildcard

    def operand() -> Any:
        value = wildcard()
        sliced = value | is_op("relax.strided_slice")(value, varg_default_wildcard=True)
        return sliced | is_op("relax.permute_dims")(sliced)

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
        """The operator, or a formula."""
        return reduce(or_, gelu_tanh_spellings(value, is_const), is_op("relax.nn.gelu_tanh")(value))

    def gelu_erf(value: Any) -> Any:
        """The operator, or a formula."""
        return reduce(or_, gelu_spellings(value, is_const), is_op("relax.nn.gelu")(value))

    def scaled(value: Any) -> Any:
        return is_op("relax.multiply")(value, is_const()) | is_op("relax.divide")(value, is_const())

    table: Mapping[str, Callable[[], Any]] = {
        "matmul": product,
        "matmul_scale": lambda: scaled(product()),
        "matmul_permute": lambda: is_op("relax.permute_dims")(product()),
        "matmul_relu": lambda: relu(reshaped(product())),
        "matmul_gelu": lambda: gelu(reshaped(product())),
        "matmul_gelu_erf": lambda: gelu_erf(reshaped(product())),
        "matmul_bias": biased,
        "matmul_bias_relu": lambda: relu(reshaped(biased())),
        "matmul_bias_gelu": lambda: gelu(reshaped(biased())),
        "matmul_bias_gelu_erf": lambda: gelu_erf(reshaped(biased())),
        "matmul_residual": lambda: residual(product()),
        "matmul_residual_relu": lambda: relu(residual(product())),
        "matmul_bias_residual": lambda: residual(biased()),
        "matmul_bias_residual_relu": lambda: relu(residual(biased())),
    }
    return {label: make() for label, make in table.items()}


def _check(label: str, dtypes: frozenset[tuple[str, str]]) -> Callable[[PatternMatch], bool]:
    def check(match: PatternMatch) -> bool:
        nodes = [match.graph.nodes[index] for index in match.inside]
        try:
            chain = read_chain({node.var: node.expr for node in nodes})
        except CodegenError:
            return False
        # With one row a bias is as large as the result: it is a bias then, and no residual.
        return chain.label == label and (dtype_of(chain.lhs), dtype_of(match.root.expr)) in dtypes

    return check


def matmul_blob(composite: Composite, chain: MatmulChain, **more: Any) -> bytes:
    """The blob of a product; `more` goes into its header.

    Raises
    ------
    CodegenError
        An operand is neither an argument nor a weight.
    """
    operands, layout = Operands(composite), chain.layout
    header: dict[str, Any] = {
        **more,
        "op": "matmul",
        "label": composite.label,
        "m": layout.m,
        "n": layout.n,
        "k": layout.k,
        "batch": layout.batch,
        "dtype": dtype_of(chain.lhs),
        "out_dtype": dtype_of(composite.result),
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
