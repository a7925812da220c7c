"""Designed blocks: workloads that belong to no network."""
