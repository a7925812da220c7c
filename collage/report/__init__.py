"""The summary of a plan, as text and as a web page: facts, and how they are shown."""
