"""Annotations of a Relax module beside its operators: opaque nodes of ONNX, devices of values, ranges of values."""
