"""What a person sees: the command line, the summary of a plan, progress."""
