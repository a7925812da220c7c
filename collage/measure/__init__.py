"""Building, checking and timing candidates and whole plans, in worker processes."""
