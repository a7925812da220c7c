"""Evolutionary refinement by end-to-end latency: genomes, fitness, checkpoints."""
