"""Benchmarks: the networks that Collage is measured on, and what measures it."""
