"""Passes over Relax modules: to canonical form, to what a device wants, to a precision."""
