"""All that is measured on a GPU (benchmarks/gpu/README.md): tuning, races with PyTorch, first contact with a device."""
