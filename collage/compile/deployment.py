"""Deployment: facts of a partitioned module that the runtime needs: the thread pools that work in a call, the alignment
of inputs, and whether the model is a single partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import tvm
from tvm import relax

from collage.backends.base import Backend
from collage.frontend.values import static_shape
from collage.runtime import engines

#: TVM's own pool of threads.
TVM_POOL = "tvm"


@dataclass(frozen=True)
class Direct:
    """A partition that is a whole model.

    Attributes
    ----------
    symbol
        Of its function, which takes inputs and then outputs.
    inputs, outputs
        Which inputs and outputs of the model these are.
    any_address
        Whether they may lie at any address.
    """

    symbol: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    any_address: bool


@dataclass(frozen=True)
class Deployment:
    """Facts of a partitioned module that go into the metadata of the compiled model.

    Attributes
    ----------
    pools
        The pools of threads that work in a call (`Backend.pool`), sorted.
    any_address
        The inputs that may lie at any address: engines alone read them.
    direct
        The partition that is the whole model; None where `main` does more than call it.
    """

    pools: tuple[str, ...]
    any_address: tuple[int, ...]
    direct: Direct | None

    @property
    def alone(self) -> bool:
        """Whether all that works in a call is one pool, and that an engine's."""
        return len(self.pools) == 1 and self.pools != (TVM_POOL,)


def deployment_of(partitioned: Any, backends: Mapping[str, Backend]) -> Deployment:
    """The facts of a module that `collage.compile.rewrite.apply` made.

    Parameters
    ----------
    partitioned
        Relax module whose `main` calls `Primitive` and `Codegen` functions.
    backends
        Name -> backend, of those that appear in it.
    """
    main = partitioned["main"]
    owners = {gv.name_hint: _owner(f, backends) for gv, f in partitioned.functions_items() if gv.name_hint != "main"}
    params, bindings = list(main.params), list(_bindings(main))
    needy = [v for b in bindings if not _takes_any_address(_called(b.value, owners)) for v in _variables(b.value)]
    pools = {TVM_POOL if owner is None else owner.pool for owner in owners.values()}
    return Deployment(
        pools=tuple(sorted(pools)),
        any_address=tuple(i for i, param in enumerate(params) if param not in needy),
        direct=_direct(main, bindings, owners),
    )


def as_metadata(deployment: Deployment) -> dict[str, Any]:
    """The facts as the runtime reads them."""
    return {name: value for name, value in asdict(deployment).items() if value is not None}


def _owner(function: Any, backends: Mapping[str, Backend]) -> Backend | None:
    """The backend whose code a function becomes; None where that is TVM's."""
    codegen = function.attrs and function.attrs.get("Codegen")
    return backends[str(codegen)] if codegen else None


def _called(value: Any, owners: Mapping[str, Backend | None]) -> Backend | None:
    return owners.get(value.op.name_hint) if _is_partition(value) else None


def _is_partition(value: Any) -> bool:
    return isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar)


def _takes_any_address(backend: Backend | None) -> bool:
    return backend is not None and backend.makes_blobs and engines.find(backend.engine_name).any_address


def _bindings(function: Any) -> Iterator[Any]:
    for block in function.body.blocks:
        yield from block.bindings


def _variables(value: Any) -> list[Any]:
    """The variables that a binding's value is made of."""
    if isinstance(value, relax.Var):
        return [value]
    parts = {relax.Call: "args", relax.Tuple: "fields"}.get(type(value))
    if parts is not None:
        return [variable for part in getattr(value, parts) for variable in _variables(part)]
    return _variables(value.tuple_value) if isinstance(value, relax.TupleGetItem) else []


def _direct(main: Any, bindings: Sequence[Any], owners: Mapping[str, Backend | None]) -> Direct | None:
    """The only call in `main`, where its arguments are inputs and its results are the outputs, each once."""
    calls = [binding for binding in bindings if isinstance(binding.value, relax.Call)]
    owner = _called(calls[0].value, owners) if len(calls) == 1 else None
    params = list(main.params)
    if owner is None or not owner.makes_blobs or any(a not in params for a in calls[0].value.args):
        return None
    call, packed = calls[0].value, calls[0].var
    results = list(range(len(_fields(packed.ty))))
    known = {packed: results}
    for binding in bindings:
        known.setdefault(binding.var, _results(binding.value, known))
    outputs = _results(main.body.body, known)
    if sorted(outputs) != results or not all(static_shape(ty) is not None for ty in _fields(packed.ty)):
        return None
    return Direct(
        symbol=call.op.name_hint,
        inputs=tuple(params.index(argument) for argument in call.args),
        outputs=tuple(outputs.index(result) for result in results),
        any_address=_takes_any_address(owner),
    )


def _fields(ty: Any) -> list[Any]:
    return list(ty.fields) if isinstance(ty, relax.TupleType) else [ty]


def _results(value: Any, known: Mapping[Any, list[int]]) -> list[int]:
    """Which results of the call a value is made of, one for each of its fields; -1 of what is none."""
    if isinstance(value, relax.Tuple):
        return [result for part in value.fields for result in _results(part, known)]
    if isinstance(value, relax.TupleGetItem):
        return _results(value.tuple_value, known)[value.index :][:1] or [-1]
    return known.get(value, [-1]) if isinstance(value, relax.Var) else [-1]
