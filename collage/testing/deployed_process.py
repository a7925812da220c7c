"""A compiled model in a fresh process, with nothing loaded but the runtime: `python -m ... MODEL INPUTS OUTPUTS`.

Inputs are read from, and outputs written to, `.npz` files.
"""

from __future__ import annotations

import sys

import numpy as np

import collage.runtime
from collage.arrays import with_type


def main(model: str, inputs: str, outputs: str) -> None:
    data = np.load(inputs)
    result = collage.runtime.load(model)(*(with_type(data[name]) for name in data.files))
    arrays = result if isinstance(result, (tuple, list)) else [result]
    np.savez(outputs, *map(np.asarray, arrays))


if __name__ == "__main__":
    main(*sys.argv[1:])
