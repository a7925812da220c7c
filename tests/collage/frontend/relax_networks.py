"""Small networks of one input that are written in Relax, and what they call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from tvm import relax

from collage.frontend import load
from collage.frontend.passes.rewriting import bindings

Emit = Callable[[Any], Any]


def network(body: Callable[[Emit, Any], Any], *shape: int, dtype: str) -> Any:
    """The canonical module of what `body` makes of `emit` and an input of this shape."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            made = body(builder.emit, x)
            result = builder.emit_output(relax.Tuple(made) if isinstance(made, tuple) else made)
        builder.emit_func_output(result)
    return load(builder.get())


def called(module: Any) -> Counter[str]:
    """How often each operator is called, without the prefix `relax.`; nothing else that is bound counts."""
    values = [value for _, value in bindings(module["main"]) if isinstance(value, relax.Call)]
    return Counter(str(value.op.name).removeprefix("relax.") for value in values)
