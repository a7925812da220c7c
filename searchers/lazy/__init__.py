"""Lazy costing: only the candidates that may be on the best path are costed."""
