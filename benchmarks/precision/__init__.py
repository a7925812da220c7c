"""Less precision under an error budget: what Collage ships against the best rival that keeps the same budget.

Every contestant is made from the same ONNX file and the same calibration samples, runs in a process of its own as the
referee has it, and is judged on the same samples that nobody has seen. A rival that keeps no budget is no rival of that
budget. `error.py` says what an error is.

    python -m benchmarks.precision.suite [NETWORK ...] --budgets 0.01,0.05     # prepare rivals, tune, judge: JSON
    python -m benchmarks.precision.table                                      # Markdown of what was judged
    python -m benchmarks.precision.tasks                                      # trained networks, by a task's metric
    python -m benchmarks.precision.error_model                                # predicted against measured error
    python -m benchmarks.precision.all_int8                                   # everything in eight bits, and NNCF

`quantise.py` runs NNCF, which is no dependency of anything else: `pip install '.[bench]'`, here or in an environment
of its own (`--nncf-python`).
"""
