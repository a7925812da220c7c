"""Shortest path over covered sets: what `dijkstra` and `beam` share."""
