"""Places: the devices that a Relax module says its values are to be computed on.

`R.hint_on_device`, `R.to_vdevice` and `VDevice` annotations are what Relax has for it. `RealizeVDevice` spreads them
over the module. While a module is brought into canonical form, `to_vdevice` stands between what is on two devices, so
that no rule joins it. Then the annotations are taken off: types, and so everything that is costed and compiled, are as
those of a module without them, and copies are placed by the plan. What is left is the device of each binding of `main`,
an attribute of the module.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from collage.annotations.places import PLACES
from collage.errors import FrontendError, last_line
from collage.frontend.passes.rewriting import bindings, call_to, rebuilt, variables


def realised(module: tvm.IRModule) -> tvm.IRModule:
    """The module with what it says of devices in the types of all values concerned; itself where it says nothing.

    Raises
    ------
    FrontendError
        A value would have to be on two devices.
    """
    if not _is_annotated(module):
        return module
    try:
        return relax.transform.RealizeVDevice()(module)
    except Exception as error:  # TVM's pass raises what it likes
        raise FrontendError(
            f"the devices that the module asks for contradict each other: {last_line(error)}; values pass from one "
            "device to another by R.to_vdevice"
        ) from error


def taken_off(module: tvm.IRModule) -> tvm.IRModule:
    """A canonical module without annotations in its types and without `to_vdevice`; its places are an attribute. A
    module without annotations is returned as it is.
    """
    function = module["main"]
    listed = list(bindings(function))
    values = [*function.params, *(variable for variable, _ in listed)]
    if not any(_place(value.ty) for value in values):
        return module
    known: dict[Any, Any] = {param: relax.Var(param.name, _plain(param.ty)) for param in function.params}
    same = {variable: value.args[0] for variable, value in listed if _is_copy(value)}
    escaping = {_origin(variable, same) for variable in variables(function.body.body)}
    rebound, places = [], []
    for variable, value in listed:
        if _is_copy(value):
            known[variable] = _replaced(value.args[0], known)
            continue
        fresh = (relax.Var if variable in escaping else relax.DataflowVar)(variable.name, _plain(variable.ty))
        rebound.append(relax.VarBinding(fresh, _replaced(value, known)))
        places.append(_place(variable.ty))
        known[variable] = fresh
    blocks = [relax.DataflowBlock(rebound)] if rebound else []
    body = relax.SeqExpr(blocks, _replaced(function.body.body, known))
    params = [known[param] for param in function.params]
    functions = dict(module.functions.items())
    functions[module.get_global_var("main")] = relax.Function(
        params, body, _plain(function.ret_ty), is_pure=True, attrs=function.attrs
    )
    plain = relax.transform.Normalize()(tvm.IRModule(functions, attrs=module.attrs))
    return plain.with_attr(PLACES, places)


def device_name(kind: int, index: int) -> str:
    """The name of a device of DLPack's type `kind`: "cuda"; "cpu:1" of any but the first one."""
    name = str(tvm.runtime.Device(kind, 0).type)
    return name if index <= 0 else f"{name}:{index}"


def _is_annotated(module: tvm.IRModule) -> bool:
    if "vdevice" in module.global_infos:
        return True
    functions = [f for f in module.functions.values() if isinstance(f, relax.Function)]
    named = ("relax.hint_on_device", "relax.to_vdevice")
    return any(call_to(value, *named) for function in functions for _, value in bindings(function))


def _is_copy(value: Any) -> bool:
    return call_to(value, "relax.to_vdevice")


def _origin(variable: Any, same: dict[Any, Any]) -> Any:
    while variable in same:
        variable = same[variable]
    return variable


def _place(ty: Any) -> str:
    """The one device of a value of this type; "" where that may be any, or there are several."""
    if isinstance(ty, relax.TupleType):
        places = {_place(field) for field in ty.fields}
        return places.pop() if len(places) == 1 else ""
    device = ty.vdevice if isinstance(ty, relax.TensorType) else None
    return "" if device is None else device_name(int(device.target.get_target_device_type()), int(device.vdevice_id))


def _plain(ty: Any) -> Any:
    """A type without devices."""
    if isinstance(ty, relax.TupleType):
        return relax.TupleType([_plain(field) for field in ty.fields])
    if not isinstance(ty, relax.TensorType) or ty.vdevice is None:
        return ty
    return relax.TensorType(ty.shape, ty.dtype)


def _replaced(value: Any, known: dict[Any, Any]) -> Any:
    result = rebuilt(value, lambda leaf: known.get(leaf, leaf) if isinstance(leaf, relax.Var) else leaf)
    if isinstance(result, relax.Call):
        types = [_plain(ty) for ty in result.ty_args]
        return relax.Call(result.op, result.args, result.attrs, types, ret_ty=_plain(value.ty))
    return result
