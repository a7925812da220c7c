"""Passes over Relax modules: to canonical form, to a layout, to a precision."""
