"""cuDNN as a backend."""
