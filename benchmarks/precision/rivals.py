"""The rivals: what the field makes of an ONNX file and calibration samples, each in the way of its documentation.

| name | made by | run by |
|---|---|---|
| openvino, onnxruntime | nobody: the file itself | float32 |
| openvino-bf16 | nobody | OpenVINO, its hint for bfloat16 |
| openvino-int8 | NNCF, post-training quantisation | OpenVINO, the rest in float32 |
| openvino-int8-bf16 | the same | OpenVINO, the rest in bfloat16 |
| nncf-E, nncf-E-bf16 | NNCF, accuracy control with a budget of E | the same two ways |
| onnxruntime-int8 | onnxruntime.quantization, static, Q/DQ | ONNX Runtime |
| onnxruntime-int8-products | the same, of products and convolutions only | ONNX Runtime |

What is made is kept in a folder for these files, with its facts, and is not made again; nor is what failed, unless its
`.json` is deleted.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import onnx
from onnx import version_converter

from benchmarks.precision.samples import read
from benchmarks.referee.process import Entry
from collage.annotations.precision import INT8_STEPS
from collage.backends.onnx.export.quantisation import int8_weight_steps
from collage.files import replacing

_ROOT = Path(__file__).resolve().parents[2]
#: Operators of attention: their presence makes a network a transformer to NNCF, as its users would say.
_ATTENTION = "Softmax"
_PRODUCTS = ("Conv", "MatMul", "Gemm")
#: The first opset whose DequantizeLinear has a scale per channel.
_PER_CHANNEL = 13


class PreparationError(Exception):
    """A rival could not be made; the message has the last line of what was said."""


@dataclass(frozen=True)
class Made:
    """A file that a rival's tool made.

    Attributes
    ----------
    file
        The model; missing where it failed.
    facts
        Versions, seconds, validations; "error" where it failed.
    """

    file: Path
    facts: dict[str, Any]


@dataclass(frozen=True)
class Nncf:
    """How NNCF is run.

    Attributes
    ----------
    python
        An interpreter that has it.
    limit_s
        Seconds that one quantisation may take.
    """

    python: str = sys.executable
    limit_s: float = 3600.0


def is_transformer(model: onnx.ModelProto) -> bool:
    """Whether products of two activations, scores and values, meet a softmax."""
    weights = {tensor.name for tensor in model.graph.initializer}
    softmax = {node.output[0] for node in model.graph.node if node.op_type == _ATTENTION}
    return any(
        node.op_type == "MatMul" and node.input[0] in softmax and node.input[1] not in weights
        for node in model.graph.node
    )


def made(path: Path, make: Any) -> Made:
    """What `make(path)` says of the file that it writes; what a former run said where there is one."""
    beside = path.with_suffix(".json")
    if not beside.exists():
        try:
            facts = make(path)
        except PreparationError as error:
            facts = {"error": str(error)}
        with replacing(beside) as partial:
            partial.write_text(json.dumps(facts) + "\n")
    return Made(path, json.loads(beside.read_text()))


def by_nncf(
    model: Path, samples: Path, out: Path, nncf: Nncf, max_drop: float | None = None, more: Sequence[str] = ()
) -> dict[str, Any]:
    """Quantise by NNCF, in a process of its own; `more` options of `quantise.py` say what a drop is of.

    Raises
    ------
    PreparationError
        It failed or took too long.
    """
    script = Path(__file__).with_name("quantise.py")
    command = [nncf.python, str(script), str(model), str(samples), str(out)]
    if is_transformer(onnx.load(model, load_external_data=False)):
        command.append("--transformer")
    if max_drop is not None:
        command += ["--max-drop", str(max_drop), *more]
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=nncf.limit_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        known = error.stdout.decode().strip().splitlines()[-1:] if error.stdout else []
        raise PreparationError(f"no end in {nncf.limit_s:.0f} s {''.join(known)}".strip()) from error
    if done.returncode:
        raise PreparationError((done.stderr.strip() or f"status {done.returncode}").splitlines()[-1])
    facts: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return facts


def by_onnxruntime(model: Path, samples: Path, out: Path, operators: Sequence[str] = ()) -> dict[str, Any]:
    """Quantise by onnxruntime.quantization: static, Q/DQ, weights per channel, unsigned activations (VNNI).

    Raises
    ------
    PreparationError
        It failed.
    """
    from onnxruntime import __version__
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left: Iterator[Any] = iter(read(samples))

        def get_next(self) -> Any:
            return next(self.left, None)

    begin = time.perf_counter()
    newer, prepared = out.with_suffix(".newer.onnx"), out.with_suffix(".prepared.onnx")
    try:
        proto = onnx.load(model)
        if any(opset.domain in ("", "ai.onnx") and opset.version < _PER_CHANNEL for opset in proto.opset_import):
            proto = version_converter.convert_version(proto, _PER_CHANNEL)
        # A file: of a model in memory, ONNX Runtime 1.32 cannot read the constants that are shapes.
        onnx.save(proto, newer)
        quant_pre_process(newer, prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared,
            out,
            Reader(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            op_types_to_quantize=list(operators) or None,
            reduce_range=int8_weight_steps() < INT8_STEPS,
        )
    except Exception as error:  # whatever a library raises is why there is no such rival
        raise PreparationError(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}") from error
    finally:
        newer.unlink(missing_ok=True)
        prepared.unlink(missing_ok=True)
    return {"onnxruntime": __version__, "seconds": round(time.perf_counter() - begin, 1)}


def has_nncf(nncf: Nncf) -> bool:
    """Whether the interpreter finds it."""
    if nncf.python == sys.executable:
        return find_spec("nncf") is not None
    return subprocess.run([nncf.python, "-c", "import nncf"], capture_output=True, check=False).returncode == 0


def rivals(
    model: Path, samples: Path, folder: Path, budgets: Sequence[float], nncf: Nncf | None, more: Sequence[str] = ()
) -> tuple[list[Entry], dict[str, dict[str, Any]]]:
    """All of them for these budgets; None leaves out what NNCF makes, `more` is as of `by_nncf`.

    Returns
    -------
    list of Entry, dict
        Whom to race, and name of what was made -> its facts. Accuracy control that reverted nothing made what plain
        quantisation makes, and is not raced again.
    """
    given = hashlib.sha256(model.read_bytes() + samples.read_bytes()).hexdigest()
    folder = folder / given[:12]
    folder.mkdir(parents=True, exist_ok=True)
    entries = [
        Entry("openvino", "openvino", model),
        Entry("openvino-bf16", "openvino-bf16", model),
        Entry("onnxruntime", "onnxruntime", model),
    ]
    facts: dict[str, dict[str, Any]] = {}

    def add(name: str, kinds: dict[str, str], result: Made) -> None:
        facts[name] = result.facts
        if "error" not in result.facts:
            entries.extend(Entry(name + suffix, kind, result.file) for suffix, kind in kinds.items())

    onnxruntime, openvino = {"": "onnxruntime"}, {"": "openvino", "-bf16": "openvino-bf16"}
    for name, operators in {"onnxruntime-int8": (), "onnxruntime-int8-products": _PRODUCTS}.items():
        file = folder / f"{name}.onnx"
        add(name, onnxruntime, made(file, lambda path, o=operators: by_onnxruntime(model, samples, path, o)))
    if nncf is None:
        return entries, facts
    plain = made(folder / "openvino-int8.xml", lambda path: by_nncf(model, samples, path, nncf))
    add("openvino-int8", openvino, plain)
    for budget in budgets:
        name = accuracy_control(budget)
        result = made(folder / f"{name}.xml", lambda path, e=budget: by_nncf(model, samples, path, nncf, e, more))
        reverted = result.facts.get("quantisers") != plain.facts.get("quantisers")
        add(name, openvino if reverted else {}, result)
    return entries, facts


def accuracy_control(budget: float) -> str:
    """What NNCF's accuracy control with this budget is called."""
    return f"nncf-{budget:g}"
