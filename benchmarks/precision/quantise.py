"""NNCF on one network: `python quantise.py MODEL.onnx SAMPLES.npz OUT.xml [--transformer] [--max-drop E]`.

Post-training quantisation with the settings that its documentation has for the kind of network; with a budget, its
accuracy control, whose metric is `error.py` on the same samples, or a pickled metric with labels on samples of its own:
as the user of a budget would call it. Models keep float32 where they are not quantised; OpenVINO can run that rest in
bfloat16.

The last line of output is JSON: NNCF's version, seconds, and of accuracy control how many validations it took, and
inferences in them, the reference's among them, and the value that the last of them gave. NNCF may be installed in
another environment than the benchmarks'.
"""

from __future__ import annotations

import argparse
import json
import pickle
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.precision.error import relative_l2


class Validation:
    """NNCF's validation function; counts what it is asked for.

    Parameters
    ----------
    samples
        To validate on.
    metric, labels
        Of a task; None goes by the error. The first model that is validated is the one in float32: its outputs are the
        reference then.
    """

    def __init__(
        self,
        samples: list[dict[str, np.ndarray]],
        metric: Callable[[Any, object], float] | None = None,
        labels: Sequence[object] = (),
    ) -> None:
        self.samples = samples
        self.metric, self.labels = metric, labels
        self.expected: dict[int, list[np.ndarray]] = {}
        self.calls = 0
        self.inferences = 0
        #: Of the last validation on all samples.
        self.value = float("nan")
        self._lock = threading.Lock()

    @property
    def counted(self) -> dict[str, int]:
        """What it was asked for so far."""
        return {"validations": self.calls, "inferences": self.inferences}

    def __call__(self, model: Any, numbers: Iterable[int]) -> tuple[float, list[float]]:
        """The mean of the metric, and each sample's. Without a metric it is one minus the error: NNCF divides by what
        float32 has.
        """
        chosen = list(numbers)
        with self._lock:
            self.calls += 1
            self.inferences += len(chosen)
            print(json.dumps(self.counted), flush=True)  # what is known if it does not end
        request = model.create_infer_request()
        values = []
        for number in chosen:
            results = request.infer(self.samples[number])
            outputs = [np.array(results[i]) for i in range(len(model.outputs))]
            if self.metric is not None:
                values.append(self.metric(outputs, self.labels[number]))
            else:
                values.append(1.0 - max(relative_l2(outputs, self.expected.setdefault(number, outputs))))
        mean = float(np.mean(values))
        if len(chosen) == len(self.samples):
            self.value = mean
        return mean, values


def read(path: Path) -> list[dict[str, np.ndarray]]:
    """Samples by name of the input."""
    with np.load(path) as data:
        arrays = {name: data[name] for name in data.files}
    return [dict(zip(arrays, values, strict=True)) for values in zip(*arrays.values(), strict=True)]


def quantise(
    model_file: Path, calibration: Path, out: Path, transformer: bool, max_drop: float | None, validation: Validation
) -> dict[str, Any]:
    """Write the quantised model, and say what it took."""
    import nncf
    import openvino as ov

    begin = time.perf_counter()
    model = ov.Core().read_model(model_file)
    kind = nncf.ModelType.TRANSFORMER if transformer else None
    given = nncf.Dataset(read(calibration))
    if max_drop is None:
        quantised = nncf.quantize(model, given, model_type=kind)
    else:
        quantised = nncf.quantize_with_accuracy_control(
            model,
            given,
            nncf.Dataset(range(len(validation.samples))),
            validation,
            max_drop=max_drop,
            drop_type=nncf.DropType.ABSOLUTE,
            model_type=kind,
        )
    seconds = time.perf_counter() - begin
    ov.save_model(quantised, out, compress_to_fp16=False)
    quantisers = sum(op.get_type_name() == "FakeQuantize" for op in quantised.get_ops())
    facts = {"nncf": version("nncf"), "seconds": round(seconds, 1), "quantisers": quantisers}
    if max_drop is None:
        return facts
    return {**facts, **validation.counted, "validated": validation.value}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("samples", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--transformer", action="store_true")
    parser.add_argument("--max-drop", type=float, help="of the metric, or the error")
    parser.add_argument("--validation", type=Path, help="samples; by default those that calibrate")
    parser.add_argument("--metric", type=Path, help="pickle of a metric and the labels of these samples")
    options = parser.parse_args()
    metric = pickle.loads(options.metric.read_bytes()) if options.metric else (None, ())
    validation = Validation(read(options.validation or options.samples), *metric)
    found = quantise(options.model, options.samples, options.out, options.transformer, options.max_drop, validation)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
