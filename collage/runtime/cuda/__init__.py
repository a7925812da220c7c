"""What a compiled model needs to run partitions on an NVIDIA device."""
