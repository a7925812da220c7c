"""Correct before fast: whether a candidate's outputs are those of the reference (Invariant 4 of the architecture)."""

from __future__ import annotations

import numpy as np

#: How the reason of a candidate begins that gives wrong numbers.
WRONG = "wrong result"
#: Larger magnitudes are masks, not values.
_MASK = 1e30


def wrong_numbers(outputs: list[np.ndarray], expected: list[np.ndarray], tolerance: float) -> str | None:
    """Why the outputs are not those of the reference, or None when they are.

    Floats agree when no difference exceeds `tolerance` times the largest magnitude in the reference (masks aside);
    other types agree exactly.
    """
    if len(outputs) != len(expected):
        return f"{WRONG}: {len(outputs)} outputs instead of {len(expected)}"
    for i, (ours, reference) in enumerate(zip(outputs, expected, strict=True)):
        if ours.shape != reference.shape or ours.dtype != reference.dtype:
            return (
                f"{WRONG}: output {i} is {ours.dtype}{list(ours.shape)}, not {reference.dtype}{list(reference.shape)}"
            )
        if not np.issubdtype(reference.dtype, np.floating):
            if not np.array_equal(ours, reference):
                return f"{WRONG}: output {i} differs in {int(np.sum(ours != reference))} of {reference.size} elements"
            continue
        finite = np.isfinite(reference)
        if not np.array_equal(np.isnan(ours), np.isnan(reference)) or not np.array_equal(
            np.where(finite, 0, reference), np.where(np.isfinite(ours), 0, ours), equal_nan=True
        ):
            return f"{WRONG}: output {i} is not finite where the reference is, or the other way round"
        if not finite.any():
            continue
        values = np.abs(reference[finite].astype(np.float64))
        error = np.abs(ours[finite].astype(np.float64) - reference[finite])
        # Attention masks hold the lowest float32: where they are, only the element itself is the scale.
        ordinary = values[values < _MASK]
        scale = max(float(ordinary.max()) if ordinary.size else 0.0, 1e-6)
        excess = error - tolerance * np.maximum(values, scale)
        if excess.max() > 0:
            worst = float(error[excess.argmax()])
            return f"{WRONG}: output {i} is off by {worst:.3g} where values reach {scale:.3g} (tolerance {tolerance:g})"
    return None
