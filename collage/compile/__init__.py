"""From a partitioning back to Relax, and on to one executable (RFC 0062, phase 4)."""
