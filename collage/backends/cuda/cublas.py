"""cuBLASLt: matrix products with what their epilogues compute, after TVM's BYOC backend of this name.

Beyond TVM's table of patterns (`tvm.relax.backend.cuda.cublas`): the left operand and the result may be permuted too,
which takes in the transpositions of heads around attention's products; a residual may be added; a scalar factor is
alpha. Every part of an epilogue makes another candidate, and the search decides where fusion pays.

cuBLASLt's GELU is the tanh form. It differs from the erf form by 4.8e-4 at most, which is half a unit in the last place
of float16 between 1 and 2, so in half precision it stands for both. In float32 the erf form is left to others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from collage.backends.cuda.base import CudaLibraryBackend
from collage.backends.library.composite import Composite
from collage.backends.library.matmul.chain import read_chain
from collage.backends.library.matmul.patterns import matmul_blob, matmul_patterns
from collage.runtime.cuda.choices import ChoosingEngine
from collage.runtime.cuda.cublas.engine import ENGINE

if TYPE_CHECKING:
    from collage.rules.base import PartitionRule

_HALF = ("float16", "bfloat16")
_DTYPES = ("float32", *_HALF)


class CublasBackend(CudaLibraryBackend):
    """Matrix products, one pattern each, run by cuBLASLt."""

    name: ClassVar[str] = "cublas"
    priority: ClassVar[int] = 12
    library_engine: ClassVar[ChoosingEngine] = ENGINE
    library: ClassVar[str] = "libcublasLt.so.13"
    version_function: ClassVar[str] = "cublasLtGetVersion"

    def rule(self) -> PartitionRule:
        from collage.rules.trees import library_rule

        return library_rule(matmul_patterns("cublas", _DTYPES, erf_dtypes=_HALF))

    def configuration(self) -> dict[str, Any]:
        """The precision."""
        return {"precision": self.checked_precision()}

    def engine_blob(self, function: Any) -> bytes:
        """The product in numbers, and its weights; see `collage/runtime/cuda/cublas/engine.cc`."""
        composite = Composite.of(function)
        chain = read_chain(composite.bound)
        if chain.activation == "gelu":
            chain = replace(chain, activation="gelu_tanh")
        return self.with_known_choice(matmul_blob(composite, chain, precision=self.precision))
