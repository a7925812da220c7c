"""From an ONNX file to Relax."""
