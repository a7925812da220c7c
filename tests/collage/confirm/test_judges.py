"""Whose order is in doubt after some rounds."""

from __future__ import annotations

import numpy as np

from collage.confirm.judges import in_doubt


def test_a_lead_that_is_neither_proven_nor_excluded_is_in_doubt() -> None:
    steady, noisy = np.ones(12), 1 + 0.3 * np.random.default_rng(0).standard_normal(12)
    partitions = {"one": 1, "many": 9}
    latencies = {"one": list(steady), "many": list(0.9 * noisy)}
    assert in_doubt(latencies, partitions) == ["one", "many"]
    assert in_doubt({**latencies, "many": list(0.9 * steady)}, partitions) == [], "it is proven"
    assert in_doubt({**latencies, "many": list(1.1 * noisy)}, partitions) == [], "there is no lead"
    assert in_doubt({**latencies, "many": list(0.99 * noisy)}, partitions) == [], "it would be a tie"
    assert in_doubt({**latencies, "many": latencies["many"][:11]}, partitions) == [], "it has left"
    assert in_doubt({"rival": list(steady)}, partitions) == []
