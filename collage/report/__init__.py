"""Reports: the summary of a plan as text, and web pages of plans, cost models and records."""
