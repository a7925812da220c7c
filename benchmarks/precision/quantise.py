"""NNCF on one network: `python quantise.py MODEL.onnx SAMPLES.npz OUT.xml [--transformer] [--max-error E]`.

Post-training quantisation with the settings that its documentation has for the kind of network; with a budget, its
accuracy control, whose metric is `error.py` on the same samples: as the user of a budget would call it. Models keep
float32 where they are not quantised; OpenVINO can run that rest in bfloat16.

The last line of output is JSON: NNCF's version, seconds, and of accuracy control how many validations it took, and
inferences in them, the reference's among them, and the error that the last of them saw. NNCF may be installed in
another environment than the benchmarks'.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.precision.error import error_of


class Validation:
    """NNCF's validation function; counts what it is asked for.

    The first model that is validated is the one in float32: its outputs are the reference.
    """

    def __init__(self, samples: list[dict[str, np.ndarray]]) -> None:
        self.samples = samples
        self.expected: dict[int, list[np.ndarray]] = {}
        self.calls = 0
        self.inferences = 0
        self.error = float("nan")
        self._lock = threading.Lock()

    def __call__(self, model: Any, numbers: Iterable[int]) -> tuple[float, list[float]]:
        """One minus the error, of these samples all together and of each: NNCF divides by what float32 has."""
        chosen = list(numbers)
        with self._lock:
            self.calls += 1
            self.inferences += len(chosen)
        request = model.create_infer_request()
        found = []
        for number in chosen:
            results = request.infer(self.samples[number])
            found.append([np.array(results[i]) for i in range(len(model.outputs))])
        for number, outputs in zip(chosen, found, strict=True):
            self.expected.setdefault(number, outputs)
        error = error_of(found, [self.expected[number] for number in chosen])
        if len(chosen) == len(self.samples):
            self.error = error.mean
        return 1.0 - error.mean, [1.0 - each for each in error.samples]


def quantise(
    model_file: Path, samples_file: Path, out: Path, transformer: bool, max_error: float | None
) -> dict[str, Any]:
    """Write the quantised model, and say what it took."""
    import nncf
    import openvino as ov

    with np.load(samples_file) as data:
        arrays = {name: data[name] for name in data.files}
    samples = [dict(zip(arrays, values, strict=True)) for values in zip(*arrays.values(), strict=True)]
    begin = time.perf_counter()
    model = ov.Core().read_model(model_file)
    kind = nncf.ModelType.TRANSFORMER if transformer else None
    calibration, validation = nncf.Dataset(samples), Validation(samples)
    if max_error is None:
        quantised = nncf.quantize(model, calibration, model_type=kind)
    else:
        quantised = nncf.quantize_with_accuracy_control(
            model,
            calibration,
            nncf.Dataset(range(len(samples))),
            validation,
            max_drop=max_error,
            drop_type=nncf.DropType.ABSOLUTE,
            model_type=kind,
        )
    seconds = time.perf_counter() - begin
    ov.save_model(quantised, out, compress_to_fp16=False)
    quantisers = sum(op.get_type_name() == "FakeQuantize" for op in quantised.get_ops())
    counted = {"validations": validation.calls, "inferences": validation.inferences, "validated": validation.error}
    if max_error is None:
        counted = {}
    return {"nncf": version("nncf"), "seconds": round(seconds, 1), "quantisers": quantisers, **counted}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("samples", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--transformer", action="store_true")
    parser.add_argument("--max-error", type=float)
    options = parser.parse_args()
    print(json.dumps(quantise(options.model, options.samples, options.out, options.transformer, options.max_error)))


if __name__ == "__main__":
    main()
