"""Operator kinds: how an operator's output elements depend on its input elements (RFC 0062, after TVM's own).

Relax keeps no pattern kind on its operators; TVM derives one from the loop nest of a legalised PrimFunc
(`op_pattern`). A call's kind is therefore found by legalising that call alone and reading the kind of what it became.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum, IntEnum

import tvm
import tvm_ffi
from tvm import relax

from collage.annotations.opaque import is_opaque


class OpKind(IntEnum):
    """How freely an operator fuses with its neighbours, freest first. A sub-graph's kind is its nodes' greatest."""

    ELEMENTWISE = 0
    """Each output element reads the input elements at its own position."""
    BROADCAST = 1
    """Each output element reads one element of each input, with axes repeated."""
    INJECTIVE = 2
    """Each output element reads one element of one input, at any position (reshape, transpose, concatenate)."""
    REDUCTION = 3
    """Each output element combines many input elements along an axis (sum, mean)."""
    ANCHOR = 4
    """A heavy operator (convolution, matmul) that followers can fuse onto: TVM's "out-elementwise-fusable"."""
    TUPLE = 5
    """A tuple of values; no computation."""
    OPAQUE = 6
    """Cannot be fused: extern calls, data-dependent outputs, sorting."""


class NodeKind(Enum):
    """What a node of the dataflow graph stands for."""

    INPUT = "input"
    CONSTANT = "constant"
    CALL = "call"
    TUPLE = "tuple"
    TUPLE_GET = "tuple_get"


class ValueKind(Enum):
    """What a node's value is. Only tensors may cross the boundary of an external function."""

    TENSOR = "tensor"
    TUPLE = "tuple"
    OTHER = "other"
    """A shape, a scalar of the virtual machine, an object."""


#: TVM's `op_pattern` attribute -> kind; patterns that are not listed (8, opaque) cannot be fused.
_OF_TVM_PATTERN = {
    0: OpKind.ELEMENTWISE,
    1: OpKind.BROADCAST,
    2: OpKind.INJECTIVE,
    3: OpKind.REDUCTION,
    4: OpKind.ANCHOR,
    7: OpKind.TUPLE,
}


#: Kinds found in this process, by operator, attributes and argument types: every candidate's module is read as a graph.
_FOUND: dict[Hashable, OpKind] = {}


def call_kind(call: relax.Call, mod: tvm.IRModule) -> OpKind:
    """The kind of a Relax call, from what it legalises to.

    A call that becomes several TIR functions (FuseTIR can merge them into one kernel) has the greatest of their kinds,
    and is at least an anchor when one of them reduces: its output may be fused with followers, but it is no longer a
    plain reduction. A call that leaves an extern or packed call behind, as one whose output shape depends on data does,
    is opaque: no kernel can contain it.

    Parameters
    ----------
    call
        A call whose arguments are variables, constants, shapes or inline tuples of them.
    mod
        The module that holds the TIR functions that `call_tir` names.
    """
    if not isinstance(call.op, tvm.ir.Op) or any(isinstance(a, tvm.ir.GlobalVar) for a in call.args):
        return _analyse(call, mod)  # another module may give the name to another function
    key = _cache_key(call)
    if key not in _FOUND:
        _FOUND[key] = _analyse(call, mod)
    return _FOUND[key]


def _cache_key(call: relax.Call) -> Hashable:
    arguments = tuple(_argument_key(argument) for argument in call.args)
    return (call.op, _structure(call.attrs), arguments, _structure(call.ty))


def _argument_key(argument: tvm.ir.Expr) -> Hashable:
    if isinstance(argument, relax.Tuple):
        return tuple(_argument_key(field) for field in argument.fields)
    return _structure(argument.ty if isinstance(argument, (relax.Var, tvm.ir.GenericConst)) else argument)


def _structure(value: tvm.runtime.Object | None) -> Hashable:
    """A key that is equal for structurally equal objects."""
    key: Hashable = None if value is None else tvm_ffi.StructuralKey(value)
    return key


def _analyse(call: relax.Call, mod: tvm.IRModule) -> OpKind:
    if isinstance(call.op, (tvm.ir.GlobalVar, relax.Var, relax.ExternFunc)) or is_opaque(call):
        return OpKind.OPAQUE
    try:
        legal = relax.transform.LegalizeOps()(_module_of(call, mod))
    except (RuntimeError, ValueError, TypeError, NotImplementedError):
        return OpKind.OPAQUE  # TVM has no kernel for it; another backend may.
    legal = relax.transform.AnnotateTIROpPattern()(legal)
    kinds: list[OpKind] = []
    for block in legal["main"].body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, (relax.Var, relax.Tuple, relax.TupleGetItem, relax.ShapeExpr)):
                continue
            if not isinstance(value, relax.Call) or value.op != tvm.ir.Op.get("relax.call_tir"):
                return OpKind.OPAQUE
            pattern = (legal[value.args[0]].attrs or {}).get("op_pattern")
            kinds.append(OpKind.OPAQUE if pattern is None else _OF_TVM_PATTERN.get(int(pattern), OpKind.OPAQUE))
    greatest = max(kinds, default=OpKind.OPAQUE)
    return max(greatest, OpKind.ANCHOR) if len(kinds) > 1 and greatest >= OpKind.REDUCTION else greatest


def _module_of(call: relax.Call, mod: tvm.IRModule) -> tvm.IRModule:
    """A module whose `main` is the one call, with the TIR functions that it names."""
    output = relax.Var("output", call.ty)
    body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(output, call)])], output)
    main = relax.Function(relax.analysis.free_vars(call), body, call.ty).with_attr("global_symbol", "main")
    functions: dict[tvm.ir.GlobalVar, tvm.ir.BaseFunc] = {tvm.ir.GlobalVar("main"): main}
    for argument in call.args:
        if isinstance(argument, tvm.ir.GlobalVar):
            functions[argument] = mod[argument]
    return relax.transform.Normalize()(tvm.IRModule(functions))
