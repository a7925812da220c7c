"""Confirmation: whole plans run interleaved, costs corrected by what was measured inside them, ties."""
