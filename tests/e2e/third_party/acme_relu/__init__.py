"""A package of somebody else's, with a backend and an engine in C++ of its own."""
