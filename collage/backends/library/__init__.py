"""What backends of labelled patterns share: from a pattern to the problem that an engine solves."""
