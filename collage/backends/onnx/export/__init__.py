"""Relax -> ONNX: the exporter that all graph-style backends share.

TVM reads ONNX but does not write it. OpenVINO and ONNX Runtime both read it, so one exporter feeds both. It takes what
the frontend leaves (static shapes, A-normal form, weights bound as constants) and writes opset 20, which both read.

There is one small converter per Relax operator, in one file per family of operators.
A converter either writes ONNX nodes that mean exactly what the Relax operator means, attribute by attribute, or raises
`Unsupported` with the reason. `unsupported_reason` is a dry run of the same converter, so a predicate made from it
promises exactly what `export_onnx` does.
"""

from collage.backends.onnx.export.between import is_product_of_data, is_sum
from collage.backends.onnx.export.conversion import Unsupported
from collage.backends.onnx.export.exporter import export_onnx, supported_operators, unsupported_reason
from collage.backends.onnx.export.quantisation import takes_int8

__all__ = [
    "Unsupported",
    "export_onnx",
    "is_product_of_data",
    "is_sum",
    "supported_operators",
    "takes_int8",
    "unsupported_reason",
]
