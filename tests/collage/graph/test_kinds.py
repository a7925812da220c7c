"""Operator kinds as TVM's own analysis gives them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te
from tvm.relax import op
from tvm.script import relax as R

from collage.graph import OpKind, kinds
from collage.graph.from_relax import read_graph
from collage.graph.kinds import call_kind

IMAGE, ROWS, VECTOR = (1, 4, 8, 8), (2, 16), (16,)


@pytest.fixture(autouse=True)
def _nothing_found_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests legalise in their own ways, of which no other may know."""
    monkeypatch.setattr(kinds, "_FOUND", {})


def var(shape: tuple[int, ...], dtype: str = "float32") -> relax.Var:
    return relax.Var("v", R.Tensor(shape, dtype))


def kind_of(call: relax.Call) -> OpKind:
    builder = relax.BlockBuilder()
    return call_kind(builder.normalize(call), tvm.IRModule({}))


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: op.nn.relu(var(ROWS)), OpKind.ELEMENTWISE),
        (lambda: op.add(var(ROWS), var(ROWS)), OpKind.ELEMENTWISE),
        (lambda: op.expand_dims(var(ROWS), 1), OpKind.BROADCAST),
        (lambda: op.broadcast_to(var(VECTOR), ROWS), OpKind.BROADCAST),
        (lambda: op.reshape(var(ROWS), (32,)), OpKind.INJECTIVE),
        (lambda: op.permute_dims(var(IMAGE), [0, 2, 3, 1]), OpKind.INJECTIVE),
        (lambda: op.concat([var(ROWS), var(ROWS)], 0), OpKind.INJECTIVE),
        (lambda: op.split(var(ROWS), 2, 1), OpKind.INJECTIVE),
        (lambda: op.sum(var(ROWS), [-1]), OpKind.REDUCTION),
        (lambda: op.nn.conv2d(var(IMAGE), var((8, 4, 3, 3))), OpKind.ANCHOR),
        (lambda: op.matmul(var(ROWS), var((16, 3))), OpKind.ANCHOR),
        (lambda: op.nn.softmax(var(ROWS)), OpKind.ANCHOR),
        (lambda: op.nn.layer_norm(var(ROWS), var(VECTOR), var(VECTOR), [-1]), OpKind.ANCHOR),
        (lambda: op.take(var(ROWS), var((3,), "int64"), 1), OpKind.OPAQUE),
        (lambda: op.sort(var(ROWS)), OpKind.OPAQUE),
        (lambda: op.unique(var(ROWS)), OpKind.OPAQUE),
        (lambda: op.nonzero(var(ROWS)), OpKind.OPAQUE),
        (lambda: op.shape_of(var(ROWS)), OpKind.OPAQUE),
    ],
)
def test_kind_of_an_operator(make: Callable[[], Any], kind: OpKind) -> None:
    assert kind_of(make()) is kind


def test_kinds_of_tir_functions() -> None:
    builder = relax.BlockBuilder()
    x = var(ROWS)
    with builder.function("main", [x]):
        with builder.dataflow():
            twice = builder.emit_te(
                lambda a: te.compute(a.shape, lambda *i: a(*i) * 2.0), x, primfunc_name_hint="twice"
            )
            axis = te.reduce_axis((0, 16))
            output = builder.emit_output(
                builder.call_te(
                    lambda a: te.compute((2,), lambda i: te.sum(a[i, axis], axis=axis)),
                    twice,
                    primfunc_name_hint="total",
                )
            )
        builder.emit_func_output(output)
    graph = read_graph(builder.get())
    assert [(n.op, n.op_kind) for n in graph.nodes[1:]] == [
        ("call_tir:twice", OpKind.ELEMENTWISE),
        ("call_tir:total", OpKind.REDUCTION),
    ]


def test_equal_calls_are_analysed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In whatever module: operators, attributes and argument types are told apart, and nothing else."""
    analysed = []
    monkeypatch.setattr(kinds, "_analyse", lambda call, mod: analysed.append(call) or OpKind.ANCHOR)
    normalize = relax.BlockBuilder().normalize
    weight = relax.const(np.ones((8, 4, 3, 3), "float32"))
    for padding in (1, 1, 0):
        for filters in (weight, var((8, 4, 3, 3)), var((16, 4, 3, 3))):
            kinds.call_kind(normalize(op.nn.conv2d(var(IMAGE), filters, padding=padding)), tvm.IRModule({}))
    assert len(analysed) == 4


def test_an_extern_call_is_opaque() -> None:
    call = relax.Call(relax.ExternFunc("anything"), [var(ROWS)], None, ty_args=[R.Tensor(ROWS, "float32")])
    assert kind_of(call) is OpKind.OPAQUE


def test_a_call_of_several_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that becomes two kernels has the greater kind; a reduction with something after it is an anchor."""

    def total(a: te.Tensor) -> te.Tensor:
        axis = te.reduce_axis((0, 16))
        return te.compute((2,), lambda i: te.sum(a[i, axis], axis=axis), name="total")

    def twice(a: te.Tensor) -> te.Tensor:
        return te.compute(a.shape, lambda *i: a(*i) * 2.0, name="twice")

    pieces = {
        "relax.abs": lambda builder, call: builder.call_te(twice, builder.emit_te(twice, call.args[0])),
        "relax.sum": lambda builder, call: builder.call_te(twice, builder.emit_te(total, call.args[0])),
        "relax.exp": lambda builder, call: builder.call_te(twice, builder.emit(op.sort(call.args[0]))),
    }
    legalize = relax.transform.LegalizeOps
    monkeypatch.setattr(relax.transform, "LegalizeOps", lambda: legalize(pieces))
    assert kind_of(op.abs(var(ROWS))) is OpKind.ELEMENTWISE
    assert kind_of(op.sum(var(ROWS), [-1])) is OpKind.ANCHOR
    assert kind_of(op.exp(var(ROWS))) is OpKind.OPAQUE


def test_what_tvm_cannot_legalise_is_opaque(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(builder: relax.BlockBuilder, call: relax.Call) -> Any:
        raise ValueError("no such kernel")

    legalize = relax.transform.LegalizeOps
    monkeypatch.setattr(relax.transform, "LegalizeOps", lambda: legalize({"relax.abs": refuse}))
    assert kind_of(op.abs(var(ROWS))) is OpKind.OPAQUE
