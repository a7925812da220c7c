"""Whole networks as they are deployed: every plan, and every rival by its own API, in a process of its own.

The processes take turns: all but one are stopped, so that they do not disturb each other.
"""
