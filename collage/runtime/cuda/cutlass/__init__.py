"""The `cutlass` engine: products by kernels that blobs carry."""
