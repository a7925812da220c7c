"""Confirmation: whole plans run as they will be deployed, costs corrected by what was measured inside them, ties."""
