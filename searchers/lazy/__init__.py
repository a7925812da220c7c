"""Lazy costing: only candidates that may be on the best path are costed."""
