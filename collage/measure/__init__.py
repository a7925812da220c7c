"""Measuring: candidates are built, checked and timed in worker processes, here, in a cluster or on a board."""
