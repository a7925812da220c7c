"""`fingerprint`: which network a canonical module is, so that a plan can be told to belong to it.

SHA-256 over operators, attributes, types, dataflow and weights. Not over names, nor over anything of the process:
TVM's own structural hash has 64 bits and promises no stability between versions or processes.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import tvm
from tvm import relax

from collage.frontend.constants import value_of
from collage.frontend.rewriting import bindings


def fingerprint(mod: tvm.IRModule) -> str:
    """64 hexadecimal digits: equal for modules of equal structure and weights, whatever their variables are called.

    Takes time linear in the weights: about a second per gigabyte.
    """
    digest = hashlib.sha256()
    numbers: dict[Any, int] = {}
    function = mod["main"]

    def put(*parts: Any) -> None:
        for part in parts:
            text = str(part).encode()
            digest.update(len(text).to_bytes(8, "little") + text)

    def expression(value: Any) -> None:
        if isinstance(value, relax.Var):
            put("variable", numbers[value])
        elif isinstance(value, tvm.ir.GenericConst):
            array = np.asarray(value_of(value), order="C")
            put("constant", array.dtype, array.shape)
            digest.update(array.reshape(-1).view(np.uint8).data)
        elif isinstance(value, relax.Tuple):
            put("tuple", len(value.fields))
            for field in value.fields:
                expression(field)
        elif isinstance(value, relax.TupleGetItem):
            put("projection", value.index)
            expression(value.tuple_value)
        elif isinstance(value, relax.Call):
            put("call", value.op.name if isinstance(value.op, tvm.ir.Op) else value.op, len(value.args))
            put("none" if value.attrs is None else tvm.ir.save_json(value.attrs), *value.ty_args)
            for argument in value.args:
                expression(argument)
        elif isinstance(value, tvm.ir.GlobalVar):
            put("function", mod[value].script(show_meta=True))
        else:
            put("other", value)

    for parameter in function.params:
        numbers[parameter] = len(numbers)
        put("input", parameter.ty)
    for variable, value in bindings(function):
        expression(value)
        numbers[variable] = len(numbers)
    put("result")
    expression(function.body.body)
    return digest.hexdigest()
