"""Whole networks as they are deployed: each in a process of its own, one awake at a time, rivals by their own API."""
