"""The `cublas` engine: matrix products by cuBLASLt."""
