"""Backends: what each can take (a rule), and how it compiles a partition."""
