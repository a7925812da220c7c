"""Shortest path over covered sets: the search that `dijkstra` and `beam` share."""
