"""Collecting training data for cost models: measurements of variants of candidates and of designed blocks."""
