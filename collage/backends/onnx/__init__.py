"""Backends that run ONNX models."""
