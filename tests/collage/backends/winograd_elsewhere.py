"""Compiles the `winograd` engine for another processor, and prints the error of a convolution relative to its maximum.

python -m tests.collage.backends.winograd_elsewhere -march=x86-64-v3
"""

from __future__ import annotations

import sys

import numpy as np

from collage.runtime import blob
from collage.runtime.winograd.engine import ENGINE


def main(flags: list[str]) -> None:
    ENGINE.flags = ("-O2", *flags)
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 20, 30, 33)), rng.standard_normal((40, 20, 3, 3))
    sizes = {"batch": 2, "channels": 20, "filters": 40, "taps": 1, "before": [0, 1, 1]}
    header = {**sizes, "image": [1, 30, 33], "result": [1, 30, 33], "operands": {"x": {"arg": 0}}}
    run = ENGINE.create(blob.pack({**header, "arguments": 2}, {"w": w.astype("f")}), {"threads": 2})
    result = np.zeros((2, 40, 30, 33), "f")
    run(x.astype("f"), result)
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    expected = np.einsum("ncyxij,fcij->nfyx", windows, w)
    print(np.abs(result - expected).max() / np.abs(expected).max())


if __name__ == "__main__":
    main(sys.argv[1:])
