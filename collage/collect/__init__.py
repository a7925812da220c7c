"""Collecting measurements on purpose: variants of candidates and designed blocks, to train cost models with."""
