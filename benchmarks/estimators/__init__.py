"""Cost models on networks that they have not seen (`python -m benchmarks.estimators`)."""
