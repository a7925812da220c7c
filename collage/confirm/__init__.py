"""Confirmation: whole plans run as they will be deployed, correct the costs, and decide which plan ships."""
