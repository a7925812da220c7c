"""Features: the numbers by which a cost model describes a workload."""
