"""CUTLASS as a backend."""
