"""Prints how many threads a process has before and after it runs a convolution of oneDNN's, and what OpenMP was set to.

python -m tests.collage.backends.onednn_threads
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import psutil
import tvm
from tvm import relax

from collage.backends.onednn.backend import OneDNNBackend
from collage.compile.build import compile_partitioned
from collage.runtime import engines
from collage.runtime.threads import configure_threads
from tests.collage.backends.one_partition import as_one_partition


def main() -> None:
    configure_threads(2)
    engines.register()
    openmp = ctypes.CDLL("libgomp.so.1")
    openmp.omp_set_num_threads(7)
    shapes, backend = [(1, 32, 28, 28)], OneDNNBackend()

    def machine(kernel: int) -> Any:
        module = as_one_partition(
            backend, shapes, lambda emit, weight, x: relax.op.nn.conv2d(x, weight(64, 32, kernel, kernel))
        )
        return relax.VirtualMachine(compile_partitioned(module, [backend], 2), tvm.cpu())["main"]

    machines = [machine(1), machine(3)]
    image = tvm.runtime.tensor(np.zeros(shapes[0], "f"))
    machines[0](image)  # TVM makes its pool
    before = psutil.Process().num_threads()
    for run in machines * 3:
        run(image)
    print(before, psutil.Process().num_threads(), openmp.omp_get_max_threads())


if __name__ == "__main__":
    main()
