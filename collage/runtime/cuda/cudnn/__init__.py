"""The `cudnn` engine: convolutions, pooling, rows and attention by cuDNN's graph API."""
