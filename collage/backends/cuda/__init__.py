"""Backends of NVIDIA devices, one file each: what they match, and what their engines make functions of."""
