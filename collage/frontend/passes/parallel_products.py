"""Products of one tensor by several weights, as one product of which each reader takes its columns.

A transformer's query, key and value are three products of the same rows. On a GPU at batch 1 each of them occupies a
few of the multiprocessors, and a kernel has a least time whatever its work: one product of all columns takes about as
long as one of the three. What follows is a view of heads (`reshape`, then `permute_dims`), so nothing is copied for the
columns: a slice of the heads, permuted, is a pointer and strides to the libraries, and part of the transposition's
kernel elsewhere. For that, heads are told apart first and then taken; a `split` before them is spelled so, too.

(TVM's own `CombineParallelMatmul` knows weights that are variables only, and leaves a `split`, which is a kernel.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from collage.frontend.passes.canonical import canonicalise
from collage.frontend.passes.rewriting import Scope, bindings, call_to, rewrite, substitute, variables
from collage.frontend.values import constant, static_shape, value_of


@dataclass(frozen=True)
class _Branch:
    """One of several products.

    Attributes
    ----------
    product, end
        The variables of the product, and of its sum with the bias; the same where there is none.
    weight, bias
        K x N, and N; None where there is no bias.
    head
        Elements of each head that the N columns are.
    """

    product: Any
    end: Any
    weight: np.ndarray
    bias: np.ndarray | None
    head: int


def merged_products(module: tvm.IRModule) -> tvm.IRModule:
    """A canonical module in which products of one tensor, whose results are permuted heads, are one; the module itself
    where nothing is to be done. The numbers are the same.
    """
    function = module["main"]
    readers: dict[Any, list[Any]] = defaultdict(list)
    definition = dict(bindings(function))
    for variable, value in definition.items():
        for read in variables(value):
            readers[read].append(variable)
    for read in variables(function.body.body):
        readers[read].append(None)
    groups: dict[Any, list[_Branch]] = defaultdict(list)
    for variable, value in definition.items():
        branch = _branch(variable, value, definition, readers)
        if branch is not None:
            kind = (value.args[0], branch.head, branch.bias is None, str(variable.ty.dtype), str(variable.ty.vdevice))
            groups[kind].append(branch)
    together = [group for group in groups.values() if len(group) > 1]
    if not together and not rewrite(function, [_slice_of_heads])[1]:
        return module
    return canonicalise(_with_merged(module, together), [_slice_of_heads])


def _branch(
    variable: Any, value: Any, definition: Mapping[Any, Any], readers: Mapping[Any, list[Any]]
) -> _Branch | None:
    """The branch that begins with a product of a variable by a matrix of weights; None for anything else."""
    if not call_to(value, "relax.matmul") or not isinstance(value.args[0], relax.Var):
        return None
    weight, end, bias = value_of(value.args[1]), variable, None
    if weight is None or weight.ndim != 2 or len(static_shape(value.args[0].ty) or ()) < 2:
        return None
    if str(variable.ty.dtype) != str(weight.dtype):
        return None
    after = _only(readers[end])
    if after is not None and call_to(definition[after], "relax.add"):
        bias = _vector(definition[after].args[1], weight.shape[1])
        if bias is None:
            return None
        end = after
    head = _head_of(end, definition, readers)
    return None if head is None else _Branch(variable, end, weight, bias, head)


def _vector(expression: Any, length: int) -> np.ndarray | None:
    """A constant along the last axis."""
    array = value_of(expression)
    if array is None or array.size != length or not array.ndim or array.shape[-1] != length:
        return None
    return array.reshape(length)


def _head_of(end: Any, definition: Mapping[Any, Any], readers: Mapping[Any, list[Any]]) -> int | None:
    """The elements of a head where the last axis of a tensor is told apart into heads, and these are permuted."""
    reshaped = _only(readers[end])
    permuted = None if reshaped is None else _only(readers[reshaped])
    if permuted is None or not call_to(definition[permuted], "relax.permute_dims"):
        return None
    return _head(definition[reshaped])


def _only(found: list[Any]) -> Any:
    """The one reader of a variable; None where it has several, or is a result of the network."""
    return found[0] if len(found) == 1 else None


def _head(value: Any) -> int | None:
    """The elements of a head, of a reshape that tells the last axis apart into heads and leaves the others."""
    if not call_to(value, "relax.reshape"):
        return None
    before, after = static_shape(value.args[0].ty), static_shape(value.ty)
    if before is None or after is None or len(after) < 3 or not before:
        return None
    heads, head = after[-2:]
    # the axes before may be spelled otherwise: one of them, or an extent of 1 more
    return head if heads * head == before[-1] and prod(after[:-2]) == prod(before[:-1]) else None


def _with_merged(module: tvm.IRModule, groups: list[list[_Branch]]) -> tvm.IRModule:
    """The module with one product for each group; what it replaces is left for dead code elimination."""
    function = module["main"]
    first = {group[0].product: group for group in groups}
    known: dict[Any, Any] = {}
    rebound: list[relax.VarBinding] = []
    for variable, value in bindings(function):
        if variable in first:
            rebound.extend(_merged(first[variable], value.args[0], known))
        if variable not in known:
            rebound.append(relax.VarBinding(variable, substitute(value, known)))
    body = relax.SeqExpr([relax.DataflowBlock(rebound)], substitute(function.body.body, known))
    functions = dict(module.functions.items())
    functions[module.get_global_var("main")] = relax.Function(
        function.params, body, function.ret_ty, attrs=function.attrs
    )
    return tvm.IRModule(functions)


def _merged(group: list[_Branch], rows: Any, known: dict[Any, Any]) -> Iterator[relax.VarBinding]:
    """The bindings of the product of a group, and of the columns of each branch, which go into `known`."""
    builder = relax.BlockBuilder()

    def bound(name: str, value: Any) -> relax.VarBinding:
        value = builder.normalize(value)
        return relax.VarBinding(relax.DataflowVar(name, value.ty), value)

    made = bound("merged", op.matmul(rows, constant(np.concatenate([branch.weight for branch in group], axis=1))))
    yield made
    if group[0].bias is not None:
        biases = constant(np.concatenate([branch.bias for branch in group if branch.bias is not None]))
        made = bound("merged", op.add(made.var, biases))
        yield made
    begin, axis = 0, len(static_shape(made.var.ty) or ()) - 1
    for branch in group:
        end = begin + branch.weight.shape[1]
        columns = bound(branch.end.name, op.strided_slice(made.var, [axis], [begin], [end]))
        known[branch.end] = columns.var
        yield columns
        begin = end


def _slice_of_heads(value: Any, scope: Scope) -> Any:
    """Permuted heads of some columns as a permuted slice of the heads of all columns."""
    if not call_to(value, "relax.permute_dims") or not scope.used_once(value.args[0]):
        return None
    reshaped = scope.definition(value.args[0])
    head = _head(reshaped)
    if head is None or not scope.used_once(reshaped.args[0]):
        return None
    columns = _columns(reshaped.args[0], scope)
    if columns is None:
        return None
    source, begin, end = columns
    width = (static_shape(source.ty) or (0,))[-1]
    if begin % head or end % head or width % head:
        return None
    shape = static_shape(reshaped.ty) or ()
    heads = op.reshape(source, (*shape[:-2], width // head, head))
    part = op.strided_slice(heads, [len(shape) - 2], [begin // head], [end // head])
    return relax.Call(value.op, [part], value.attrs, value.ty_args)


def _columns(tensor: Any, scope: Scope) -> tuple[Any, int, int] | None:
    """The tensor of which one is a part of the last axis: (whole, begin, end)."""
    found = scope.definition(tensor)
    rank = len(static_shape(tensor.ty) or ())
    if call_to(found, "relax.strided_slice") and len(found.args) == 4:
        axes, begin, end = ([int(number) for number in part.fields] for part in found.args[1:])
        if axes == [rank - 1] and 0 <= begin[0] < end[0] <= (static_shape(found.args[0].ty) or (0,))[-1]:
            return found.args[0], begin[0], end[0]
    if isinstance(found, relax.TupleGetItem):
        split = scope.definition(found.tuple_value)
        if call_to(split, "relax.split") and int(split.attrs.axis) % rank == rank - 1:
            widths = [(static_shape(field) or (0,))[-1] for field in split.ty.fields]
            begin_at = sum(widths[: found.index])
            return split.args[0], begin_at, begin_at + widths[found.index]
    return None
