"""Converters of quantisation and its inverse."""

from __future__ import annotations

from collage.backends.onnx.export.conversion import Conversion, Converter
from collage.backends.onnx.export.graph import Value

_BYTES = ("int8", "uint8")


def _quantize(c: Conversion) -> Value:
    c.require_dtype(("float32",))
    c.require(c.result.dtype in _BYTES, f"the result has dtype {c.result.dtype}")
    return _emit(c, "QuantizeLinear", c.result.dtype)


def _dequantize(c: Conversion) -> Value:
    c.require_dtype(_BYTES)
    c.require(c.result.dtype == "float32", f"the result has dtype {c.result.dtype}")
    return _emit(c, "DequantizeLinear", c.type(0).dtype)


def _emit(c: Conversion, op: str, dtype: str) -> Value:
    c.require_dtype(("float32",), 1)
    c.require_dtype((dtype,), 2)
    c.require(c.type(1).rank <= 1 and c.type(1).shape == c.type(2).shape, "scale and zero point are no vectors")
    return c.emit(op, c.value(0), c.value(1), c.value(2), axis=int(c.attrs.axis))


CONVERTERS: dict[str, Converter] = {"relax.quantize": _quantize, "relax.dequantize": _dequantize}
