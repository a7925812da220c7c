"""All that is measured on a GPU (docs/GPU.md): tuning, races with PyTorch, first contact with a device."""
