"""Training data: which records are used, and how disturbances by the machine are removed from them."""
