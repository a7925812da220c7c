"""Costs: the latency of a candidate, of passing a tensor on, and who estimates them."""
