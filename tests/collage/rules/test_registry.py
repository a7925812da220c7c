"""Patterns that are registered with TVM, as a rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op
from tvm.relax.backend import _ffi_api
from tvm.relax.backend.pattern_registry import register_patterns
from tvm.relax.backend.utils import has_leaking_intermediate_variables
from tvm.relax.dpl import is_op, wildcard

from collage.graph.candidates import CandidatePartition
from collage.graph.from_relax import read_graph
from collage.rules import RegistryPartitionRule
from collage.rules.base import PartitionSpec


def accepts(context: Any) -> bool:
    """As TVM's own checks: no value leaks, and what is annotated is what it is annotated as."""
    if has_leaking_intermediate_variables(context):
        return False
    product, weight = context.annotated_expr["product"], context.annotated_expr["weight"]
    return product.op.name == "relax.matmul" and weight.ty.shape[1] == 8


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    weight = wildcard()
    product = is_op("relax.matmul")(wildcard(), weight)
    register_patterns(
        [
            ("acme.relu", is_op("relax.nn.relu")(wildcard())),
            ("acme.matmul_relu", is_op("relax.nn.relu")(product), {"product": product, "weight": weight}, accepts),
            ("other.matmul", product),
        ]
    )
    yield
    _ffi_api.RemovePatterns(["acme.relu", "acme.matmul_relu", "other.matmul"])


def found(prefix: str) -> list[tuple[str, tuple[str, ...]]]:
    def product(columns: int) -> Any:
        return builder.emit(op.matmul(x, relax.const(np.ones((6, columns), "float32"))))

    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((4, 6), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            leaks = product(8)
            results = [op.nn.relu(product(8)), op.nn.relu(product(6)), op.nn.relu(leaks), leaks]
            output = builder.emit_output(relax.Tuple([builder.emit(value) for value in results]))
        builder.emit_func_output(output)
    graph = read_graph(relax.transform.CanonicalizeBindings()(builder.get()))
    candidates = PartitionSpec(RegistryPartitionRule(prefix), "acme").candidates(graph)
    return sorted(
        (_label(c), tuple(graph.nodes[i].op.rpartition(".")[2] for i in c.sub_graph.inside)) for c in candidates
    )


def _label(candidate: CandidatePartition) -> str:
    ((label, nodes),) = candidate.composites
    assert nodes == candidate.sub_graph.inside
    return label


def test_the_patterns_of_a_prefix_are_found_with_their_names_and_checks() -> None:
    """Of three products with a relu, one is too narrow, and one leaks."""
    assert found("acme.") == [("acme.matmul_relu", ("matmul", "relu")), *[("acme.relu", ("relu",))] * 3]
    assert found("other.") == [("other.matmul", ("matmul",))] * 3
    assert found("nobody.") == []
