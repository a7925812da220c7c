"""Copies between devices, placed in a partitioned module.

Every partition runs on the device of its backend. What it reads of another device is copied there: once per value and
device, however many partitions read it. Inputs lie, and results end, on the plan's first device, its *home*. A node on
the host lies at home if it is a result, else where the first value that it reads lies. `collage.search.crossings`
charges by the same rules.

The device of every value is in its type (`VDevice`), from which TVM's memory planning and virtual machine take it.
Constants that kernels read on another device than home come from an engine (`collage.runtime.engines.weights`), which
has brought them there once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from collage.runtime.devices import kind_and_index


def owners_of(partitioned: Any, devices: Mapping[str, str]) -> dict[str, str]:
    """Symbol of each partition -> the device of its backend.

    Parameters
    ----------
    partitioned
        What `collage.compile.rewrite.apply` made.
    devices
        Name -> device of each backend.
    """
    owners = {}
    for symbol, function in partitioned.functions_items():
        attributes = function.attrs or {}
        name = attributes.get("Codegen", None) or attributes.get("collage.backend", None)
        if name is not None:
            owners[symbol.name_hint] = devices[str(name)]
    return owners


def devices_of(owners: Mapping[str, str], home: str) -> tuple[str, ...]:
    """The devices that a partitioned module runs on, `home` first."""
    return (home, *sorted(set(owners.values()) - {home}))


@dataclass(frozen=True)
class Placed:
    """A module over several devices.

    Attributes
    ----------
    module
        With copies where a value is read on another device, and with the device of every value that is not at home in
        its type.
    weights
        Device -> symbol that gives the constants that are read there, and these.
    """

    module: Any
    weights: Mapping[str, tuple[str, list[np.ndarray]]]


def with_copies(module: Any, owners: Mapping[str, str], home: str) -> Placed:
    """Place copies, and constants.

    Parameters
    ----------
    module
        A partitioned module whose `main` calls partitions, or external symbols that backends made of them.
    owners
        Symbol of each partition -> its device (`owners_of`).
    home
        Where inputs lie and results end.
    """
    names = devices_of(owners, home)
    virtual = {name: _virtual(name) for name in names}
    main = module["main"]
    writer = _Writer(virtual, home)
    writer.known.update({parameter: (parameter, home) for parameter in main.params})
    for block in main.body.blocks:
        for binding in block.bindings:
            writer.bind(binding.var, binding.value, owners)
    result = writer.brought(main.body.body, home)
    body = relax.SeqExpr([relax.DataflowBlock([*writer.weight_bindings(), *writer.bindings])], result)
    placed = module.clone()
    written = relax.Function(list(main.params), body, main.ret_ty, is_pure=True).with_attrs(main.attrs)
    placed.update_func(module.get_global_var("main"), written)
    placed.update_global_info("vdevice", [virtual[name] for name in names])
    return Placed(relax.transform.Normalize()(placed), writer.weights())


class _Writer:
    """Writes `main` anew, with copies."""

    def __init__(self, virtual: Mapping[str, Any], home: str) -> None:
        self.virtual = virtual
        self.home = home
        self.bindings: list[Any] = []
        #: old variable -> what it has become, and where that lies
        self.known: dict[Any, tuple[Any, str]] = {}
        #: (what is copied, device) -> its copy
        self._copies: dict[tuple[Any, str], Any] = {}
        #: of projections: the tuple and the position; of tuples: their fields
        self._fields: dict[tuple[Any, int], Any] = {}
        #: device -> constant -> the variable that it is there
        self._constants: dict[str, dict[Any, Any]] = {}

    def bind(self, variable: Any, value: Any, owners: Mapping[str, str]) -> None:
        """Write one binding of `main`."""
        symbol = _symbol(value)
        if symbol is not None and symbol in owners:
            device = owners[symbol]
        elif not isinstance(variable, relax.DataflowVar):
            device = self.home  # a result
        else:
            device = next((self.known[read][1] for read in _variables(value)), self.home)
        placed = self.brought(value, device)
        if isinstance(placed, relax.TupleGetItem):
            projected = self._fields.get((placed.tuple_value, placed.index))
            if projected is not None:
                self.known[variable] = (projected, device)
                if not isinstance(variable, relax.DataflowVar):
                    self._emit(variable, projected, device)
                return
        self._emit(variable, placed, device)

    def brought(self, value: Any, device: str) -> Any:
        """A value of `main` with all that it reads on one device."""
        if isinstance(value, relax.Var):
            fresh, lies = self.known[value]
            return fresh if lies == device else self._copied(fresh, device)
        if isinstance(value, tvm.ir.GenericConst) and device != self.home:
            return self._constant(value, device)
        if isinstance(value, relax.Tuple):
            return relax.Tuple([self.brought(part, device) for part in value.fields])
        if isinstance(value, relax.TupleGetItem):
            return relax.TupleGetItem(self.brought(value.tuple_value, device), value.index)
        if isinstance(value, relax.Call):
            arguments = [self.brought(part, device) for part in value.args]
            types = [self._placed(ty, device) for ty in value.ty_args]
            return relax.Call(value.op, arguments, value.attrs, types, ret_ty=self._placed(value.ty, device))
        return value

    def weights(self) -> dict[str, tuple[str, list[np.ndarray]]]:
        """Device -> symbol that gives the constants that are read there, and these."""
        return {
            device: (_weights_symbol(device), [constant.value.numpy() for constant in constants])
            for device, constants in self._constants.items()
        }

    def weight_bindings(self) -> Iterator[Any]:
        """What has to be bound before all else."""
        for device, constants in self._constants.items():
            ty = relax.TupleType([variable.ty for variable in constants.values()])
            packed = relax.DataflowVar(_weights_symbol(device), ty)
            call = relax.op.call_pure_packed(_weights_symbol(device), ty_args=[ty])
            yield relax.VarBinding(packed, call)
            for position, variable in enumerate(constants.values()):
                yield relax.VarBinding(variable, relax.TupleGetItem(packed, position))

    def _constant(self, value: Any, device: str) -> Any:
        known = self._constants.setdefault(device, {})
        return known.setdefault(value, relax.DataflowVar(f"weight{len(known)}", self._placed(value.ty, device)))

    def _emit(self, variable: Any, value: Any, device: str) -> Any:
        fresh = type(variable)(variable.name, self._placed(variable.ty, device))
        self.bindings.append(relax.VarBinding(fresh, value))
        self.known[variable] = (fresh, device)
        for position, field in enumerate(value.fields if isinstance(value, relax.Tuple) else ()):
            self._fields[fresh, position] = field
        if isinstance(value, relax.TupleGetItem):
            self._fields[value.tuple_value, value.index] = fresh
        return fresh

    def _copied(self, variable: Any, device: str) -> Any:
        """A copy on another device; of a tuple, of its fields."""
        if (variable, device) not in self._copies:
            if isinstance(variable.ty, relax.TupleType):
                fields = [self._copied(self._field(variable, i), device) for i in range(len(variable.ty.fields))]
                value: Any = relax.Tuple(fields)
            else:
                value = relax.op.to_vdevice(variable, self.virtual[device])
            copy = relax.DataflowVar(f"{variable.name}_copy", self._placed(variable.ty, device))
            self.bindings.append(relax.VarBinding(copy, value))
            for position, field in enumerate(value.fields if isinstance(value, relax.Tuple) else ()):
                self._fields[copy, position] = field
            self._copies[variable, device] = copy
        return self._copies[variable, device]

    def _field(self, packed: Any, position: int) -> Any:
        if (packed, position) not in self._fields:
            field = relax.DataflowVar(f"{packed.name}_{position}", packed.ty.fields[position])
            self.bindings.append(relax.VarBinding(field, relax.TupleGetItem(packed, position)))
            self._fields[packed, position] = field
        return self._fields[packed, position]

    def _placed(self, ty: Any, device: str) -> Any:
        return _placed(ty, None if device == self.home else self.virtual[device])


def _symbol(value: Any) -> str | None:
    """The symbol of the partition that a value is a call of."""
    if not isinstance(value, relax.Call):
        return None
    if isinstance(value.op, tvm.ir.GlobalVar):
        return str(value.op.name_hint)
    called = value.args[0] if len(value.args) else None
    if isinstance(called, tvm.ir.GlobalVar):
        return str(called.name_hint)
    return str(called.global_symbol) if isinstance(called, relax.ExternFunc) else None


def _placed(ty: Any, virtual: Any) -> Any:
    """A type on a device."""
    if isinstance(ty, relax.TupleType):
        return relax.TupleType([_placed(field, virtual) for field in ty.fields])
    return relax.TensorType(ty.shape, ty.dtype, virtual) if isinstance(ty, relax.TensorType) else ty


def _weights_symbol(device: str) -> str:
    return re.sub(r"\W", "_", f"weights_on_{device}")


def _virtual(device: str) -> Any:
    kind, index = kind_and_index(device)
    return relax.VDevice({"kind": {"cpu": "llvm"}.get(kind, kind)}, index)


def _variables(value: Any) -> Iterator[Any]:
    """The variables that a value reads, in order."""
    if isinstance(value, relax.Var):
        yield value
    parts = {relax.Call: "args", relax.Tuple: "fields"}.get(type(value))
    for part in getattr(value, parts) if parts else ():
        yield from _variables(part)
    if isinstance(value, relax.TupleGetItem):
        yield from _variables(value.tuple_value)
