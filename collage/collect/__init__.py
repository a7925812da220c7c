"""Collecting measurements on purpose: records to train cost models with."""
