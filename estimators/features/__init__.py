"""What cost models see of a workload."""
