"""Precisions: in how many bits an operator may be computed, and where a module says what its values range over.

Everything is float32 (or what the network itself says) unless the user grants an error. Then a candidate may be of a
backend of less precision (`Backend.precision`), and of graph backends single products may be in eight bits: the nodes
that a candidate labels `INT8`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

FLOAT32 = "float32"
BF16 = "bf16"
#: The precision, and the label of the nodes of a candidate that are computed in it: their data operand is quantised by
#: the range that was seen in calibration, their weights by channel.
INT8 = "int8"

#: All that there are.
PRECISIONS = (FLOAT32, BF16, INT8)
#: Precisions whose error the user has to grant. TF32 is asked for by the user, backend by backend.
LESS_PRECISE = frozenset((BF16, INT8))

#: Attribute of a calibrated module: lowest and highest value, one after the other, of each parameter of `main`, and
#: then of what each binding gives; twice 0 where that is not known.
RANGES = "collage_ranges"
#: Attributes of a partition's function: the positions of the bindings that are in eight bits, and the ranges of its
#: parameters and bindings, as `RANGES` has them of a module; of library backends of eight bits, of its parameters only.
INT8_POSITIONS = "collage_int8"
INT8_RANGES = "collage_int8_ranges"

Range = tuple[float, float]
#: Of a value whose range is not known.
UNKNOWN: Range = (0.0, 0.0)
#: What data range over where nobody calibrated: latency does not depend on it.
_ANY: Range = (-4.0, 4.0)
#: Steps of uint8, and of symmetric int8 on each side of 0.
UINT8_STEPS, INT8_STEPS = 255, 127
#: The least scale: a product of two of them, and its reciprocal, are numbers of float32.
LEAST_SCALE = 1e-15


def with_ranges(module: Any, ranges: Sequence[Range]) -> Any:
    """The module with the ranges of its values: of each parameter of `main`, then of each binding."""
    return module.with_attr(RANGES, [float(end) for ends in ranges for end in ends])


def ranges_of(module: Any) -> list[Range]:
    """The range of each parameter of `main`, then of each binding; [] where the module was not calibrated."""
    ends = [float(end) for end in module.attrs[RANGES]] if module.attrs and RANGES in module.attrs else []
    return list(zip(ends[::2], ends[1::2], strict=True))


def uint8_steps(ends: Range) -> tuple[float, int]:
    """Scale and zero point of data in uint8: zero, which pads images, is a step. What is beyond the range saturates.

    Raises
    ------
    ValueError
        The data were not finite in calibration.
    """
    low, high = _with_zero(ends)
    scale = np.float32(max((high - low) / UINT8_STEPS, LEAST_SCALE))
    return float(scale), int(np.clip(np.rint(-low / scale), 0, UINT8_STEPS))


def int8_scale(ends: Range) -> float:
    """Scale of data in int8 without a zero point. Raises as `uint8_steps`."""
    low, high = _with_zero(ends)
    return float(np.float32(max(max(-low, high) / INT8_STEPS, LEAST_SCALE)))


def _with_zero(ends: Range) -> Range:
    """The range that quantisation covers."""
    if not all(map(math.isfinite, ends)):
        raise ValueError("its data were not finite in calibration: it cannot be in eight bits")
    return _ANY if ends == UNKNOWN else (min(ends[0], 0.0), max(ends[1], 0.0))
