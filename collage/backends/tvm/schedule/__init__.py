"""Schedule rules: how TVM's kernels are tiled, vectorised and run in parallel."""
