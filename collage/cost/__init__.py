"""Costs: the latency of a candidate, the cost of a transition, and the base class of estimators."""
