"""What a Relax module carries beside Relax's operators: opaque nodes of ONNX, devices of values, ranges of values."""
