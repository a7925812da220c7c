"""Check: whether a candidate's outputs equal those of the reference (correct before fast, Invariant 4)."""

from __future__ import annotations

import numpy as np

from collage.measure.rounding import QUANTISED

#: How the reason of a candidate begins that gives wrong numbers.
WRONG = "wrong result"
#: Larger magnitudes are masks, not values.
_MASK = 1e30
#: Of results in a precision that the user granted: relative L2 errors, in tolerances and at most, up to which single
#: values may differ by more. Where another class wins, its probability differs by 1. Results of another network err by
#: about 1.
_GRANTED_L2, _MOST_L2 = 2.0, 0.5
#: Kinds of float that keep fewer digits than float32: their least tolerance, and the magnitude of a mask. What is
#: rounded to float16 is off by 5e-4 before anything was computed. The dtype is part of a workload's structure, so that
#: structure and `Protocol.tolerance` in a record's key give together the tolerance that applied.
_NARROW = {"float16": (1e-2, 3e4), "bfloat16": (8e-2, _MASK)}


def wrong_numbers(outputs: list[np.ndarray], expected: list[np.ndarray], tolerance: float) -> str | None:
    """Why the outputs are not those of the reference, or None when they are.

    Floats agree when no difference exceeds `tolerance` times the largest magnitude in the reference (masks aside), or a
    hundredth of that magnitude in float16 and eight hundredths in bfloat16; other types agree exactly. Where the
    tolerance is that of quantisation (`collage.measure.rounding`), bytes may be off by one step, and one in a hundred
    by more, within the tolerance. A larger tolerance is of a precision that the user granted: there floats agree, too,
    whose relative L2 difference is small, and an error budget says what single values may cost.
    """
    if len(outputs) != len(expected):
        return f"{WRONG}: {len(outputs)} outputs instead of {len(expected)}"
    for i, (ours, reference) in enumerate(zip(outputs, expected, strict=True)):
        if ours.shape != reference.shape or ours.dtype != reference.dtype:
            return (
                f"{WRONG}: output {i} is {ours.dtype}{list(ours.shape)}, not {reference.dtype}{list(reference.shape)}"
            )
        kind = reference.dtype.name
        if not np.issubdtype(reference.dtype, np.floating) and kind not in _NARROW:
            if not np.array_equal(ours, reference) and not _few_steps(ours, reference, tolerance):
                return f"{WRONG}: output {i} differs in {int(np.sum(ours != reference))} of {reference.size} elements"
            continue
        least, mask = _NARROW.get(kind, (0.0, _MASK))
        allowed = max(tolerance, least)
        if kind in _NARROW:
            ours, reference = ours.astype(np.float32), reference.astype(np.float32)
        finite = np.isfinite(reference)
        if not np.array_equal(np.isnan(ours), np.isnan(reference)) or not np.array_equal(
            np.where(finite, 0, reference), np.where(np.isfinite(ours), 0, ours), equal_nan=True
        ):
            return f"{WRONG}: output {i} is not finite where the reference is, or the other way round"
        if not finite.any():
            continue
        values = np.abs(reference[finite].astype(np.float64))
        error = np.abs(ours[finite].astype(np.float64) - reference[finite])
        # Attention masks hold the lowest number there is: where they are, only the element itself is the scale.
        ordinary = values[values < mask]
        scale = max(float(ordinary.max()) if ordinary.size else 0.0, 1e-6)
        excess = error - allowed * np.maximum(values, scale)
        if excess.max() > 0 and not (tolerance > QUANTISED and _close_in_l2(error, values, mask, tolerance)):
            worst = float(error[excess.argmax()])
            return f"{WRONG}: output {i} is off by {worst:.3g} where values reach {scale:.3g} (tolerance {allowed:g})"
    return None


def _close_in_l2(error: np.ndarray, values: np.ndarray, mask: float, tolerance: float) -> bool:
    """Whether what is no mask differs little as a whole, and each mask within the tolerance."""
    own = values < mask
    allowed = min(_GRANTED_L2 * tolerance, _MOST_L2) * np.linalg.norm(values[own])
    return bool(np.linalg.norm(error[own]) <= allowed and (error[~own] <= tolerance * values[~own]).all())


def _few_steps(ours: np.ndarray, reference: np.ndarray, tolerance: float) -> bool:
    """Whether bytes differ as rounding differs."""
    if reference.dtype.name not in ("int8", "uint8") or tolerance < QUANTISED:
        return False
    steps = np.abs(ours.astype(np.int16) - reference)
    return bool(steps.max() <= 256 * tolerance and np.mean(steps > 1) <= 0.01)
