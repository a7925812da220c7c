"""oneDNN on the CPU, by operands of float32 and of less precision."""
