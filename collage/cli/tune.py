"""`collage tune`: from an ONNX file to a compiled model, with the plan and the reasons."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from collage.annotations.precision import FLOAT32, PRECISIONS
from collage.cli.exits import guarded
from collage.cli.options import (
    Batches,
    Details,
    Device,
    Devices,
    Html,
    Model,
    Output,
    Parameters,
    Records,
    Runner,
    ShapeLists,
    Shapes,
    Target,
    Verbose,
    Workers,
    file_of,
    parse_batches,
    parse_names,
    parse_parameters,
    parse_shape_lists,
    parse_shapes,
    require_writable,
)
from collage.cli.terminal import quiet

if TYPE_CHECKING:
    from collage.api.plan import Plan
    from collage.api.plan_set import PlanSet
    from collage.backends.base import Backend

_Backends = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,NAME,...", help="Backends to choose from; by default all available.", show_default=False
    ),
]
_Plan = Annotated[
    Path | None,
    typer.Option(metavar="PLAN.json", help="The plan to write; by default beside OUT.so.", show_default=False),
]
_Threads = Annotated[
    int | None,
    typer.Option(min=1, help="Threads of the deployment; by default all processors.", show_default=False),
]
_Trials = Annotated[
    int, typer.Option(min=0, help="Schedules that MetaSchedule tries per TVM kernel; 0 takes the schedule rules.")
]
_Budget = Annotated[
    float | None, typer.Option(min=0.0, metavar="SECONDS", help="Time limit of the search.", show_default=False)
]

#: Kinds of records, one and several.
_KINDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "candidate": ("candidate", "candidates"),
        "transition": ("transition", "transitions"),
        "plan": ("plan end to end", "plans end to end"),
        "sensitivity": ("operator's error", "operators' errors"),
        "calibration": ("calibration", "calibrations"),
    }
)


@guarded
def tune(
    model: Model,
    output: Output,
    backends: _Backends = None,
    device: Device = "cpu",
    devices: Devices = None,
    searcher: Annotated[str, typer.Option(help="How covers are searched.")] = "dijkstra",
    effort: Annotated[
        str, typer.Option(metavar="quick|normal|thorough", help="How much is measured to find the plan.")
    ] = "normal",
    estimator: Annotated[
        str | None, typer.Option(help="Where costs come from; by default as the effort says.", show_default=False)
    ] = None,
    records: Records = None,
    threads: _Threads = None,
    shape: Shapes = None,
    shapes: ShapeLists = None,
    batch: Batches = None,
    max_error: Annotated[
        float | None,
        typer.Option(
            metavar="E",
            help="Error budget: largest relative L2 error of each output, as 0.01; by default all is in float32.",
            show_default=False,
        ),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(
            metavar="SAMPLE.npz",
            help="What candidates and plans run on: an array for each input, by name; by default random values.",
            show_default=False,
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            metavar="SAMPLES.npz",
            help="Samples of the inputs, by name, with one more leading axis; every second one is held out.",
            show_default=False,
        ),
    ] = None,
    precisions: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME,...",
            help="Precisions within the error budget: float32, bf16, int8; by default all that this processor has.",
            show_default=False,
        ),
    ] = None,
    plan: _Plan = None,
    report: Html = None,
    details: Details = False,
    tune_trials: _Trials = 0,
    confirm: Annotated[bool, typer.Option(help="Time the plan end to end against the baselines.")] = True,
    correction_rounds: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="How often costs are corrected by end-to-end runs, and the search repeated; by default as the effort "
            "says.",
            show_default=False,
        ),
    ] = None,
    budget: _Budget = None,
    seed: Annotated[int, typer.Option(help="Of the searcher's and the inputs' random numbers.")] = 0,
    parameter: Parameters = None,
    workers: Workers = None,
    runner: Runner = None,
    target: Target = None,
    verbose: Verbose = False,
) -> None:
    """Find which backend should run which part of a network, and compile it."""
    plan_path = plan or output.with_suffix(".plan.json")
    fixed, names = parse_shapes(shape), parse_names(backends, "--backends")
    several, batches = parse_shape_lists(shapes), parse_batches(batch)
    places = parse_names(devices, "--devices") or [device]
    chosen = parse_names(precisions, "--precisions")
    granted = (FLOAT32, *(() if max_error is None else chosen or PRECISIONS))
    if (several or batches) and inputs is not None:
        raise typer.BadParameter("is of one list of shapes: leave out --shapes and --batch", param_hint="--inputs")
    parameters = parse_parameters(parameter)
    require_writable(
        {"--output": output, "--plan": plan_path, "--report": report},
        {"the model": model, "the inputs": inputs, "the records": file_of(records)},
    )
    started = time.monotonic()
    with quiet(verbose) as terminal:
        from collage.without_torch import import_tvm_without_torch

        import_tvm_without_torch()  # an ONNX file has no use for PyTorch, which takes seconds
        from collage.api.partitioner import partition
        from collage.api.several_shapes import partition_shapes
        from collage.backends.tvm.target import linker_of, parse_target
        from collage.cli.progress_bar import ProgressBar, duration
        from collage.frontend import batch_shapes
        from collage.records import RecordDatabase, default_path

        if target is not None:
            linker_of(parse_target(target)).require_able(output)
        path = records or str(default_path())
        with RecordDatabase(path) as database:
            before, shown = database.stats().by_kind, database.name
        reporter = ProgressBar(terminal)
        options: dict[str, Any] = {
            "backends": configured_backends(names, path, tune_trials, *places, precisions=granted),
            "searcher": searcher,
            "estimator": estimator,
            "device": places[0],
            "devices": places,
            "records": path,
            "threads": threads,
            "inputs": inputs,
            "max_error": max_error,
            "calibration": calibration,
            "precisions": chosen,
            "confirm_end_to_end": confirm,
            "effort": effort,
            "correction_rounds": correction_rounds,
            "budget_s": budget,
            "seed": seed,
            "searcher_parameters": parameters["searcher"],
            "estimator_parameters": parameters["estimator"],
            "workers": workers,
            "runner": runner,
            "target": target,
            "reporter": reporter,
        }
        found: Plan | PlanSet
        try:
            if several or batches:
                wanted: list[Any] = [{**fixed, **each} for each in several] or [fixed]
                if batches:
                    wanted = [batched for each in wanted for batched in batch_shapes(model, batches, each)]
                found = partition_shapes(model, wanted, **options)
            else:
                found = partition(model, shapes=fixed, **options)
            found.save(plan_path)
            reporter.stage("compiling")
            compiled = found.compile()
            compiled.export(output)
            reporter.finish()
        finally:
            reporter.close()
        with RecordDatabase(path) as database:
            measured = _difference(before, database.stats().by_kind)
    from collage.api.plan import Plan
    from collage.compile.model_set import CompiledSet
    from collage.report.html import write_html
    from collage.report.summary import print_summary

    plans = [found] if isinstance(found, Plan) else found.plans
    print_summary(*plans, details=details)
    if report is not None:
        write_html(plans, report, model.name)
    if isinstance(compiled, CompiledSet):
        print(compiled.description(output))
    print(f"Measured now: {measured} (records: {shown}); {duration(time.monotonic() - started)}")
    written = ", ".join(str(p) for p in (output, plan_path, report) if p is not None)
    print(f"Wrote {written}")


def _difference(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """What was added, as "512 candidates, 6 transitions"; "nothing" when nothing was."""
    added = {kind: after[kind] - before.get(kind, 0) for kind in sorted(after)}
    words = [f"{count:,} {_name(kind, count)}" for kind, count in added.items() if count > 0]
    return ", ".join(words) or "nothing"


def _name(kind: str, count: int) -> str:
    singular, plural = _KINDS.get(kind, (kind, kind))
    return singular if count == 1 else plural


def configured_backends(
    names: Sequence[str] | None,
    records: str,
    tune_trials: int,
    device: str = "cpu",
    *others: str,
    precisions: Collection[str] = (FLOAT32,),
) -> list[str | Backend]:
    """The backends of the command line: instances of native ones, with their tuning records, and names of the others.

    Parameters
    ----------
    names
        Those that were asked for; None is all available ones of the devices and precisions.
    records
        The records database, beside which tuning records lie.
    tune_trials
        Schedules that MetaSchedule tries for each kernel.
    device, others
        Names of the devices; the first is the home of inputs and results.
    precisions
        Of the backends that None stands for.

    Raises
    ------
    CollageError
        The device or a name is unknown, or schedules are to be tried and TVM is not among the backends.
    """
    from collage.backends.resolve import available_backends
    from collage.errors import CollageError
    from collage.runtime.devices import KINDS, kind_and_index

    places = (device, *others)
    for place in places:
        if kind_and_index(place)[0] not in KINDS:
            raise CollageError(f"--device is {' or '.join(KINDS)}, not {place!r}")
    natives = {place: native_backend(place, tuning_folder(records, place), tune_trials) for place in places}
    tuned: dict[str, Backend] = {}
    for place, native in natives.items():
        if native.device == place:  # of further CPUs there is none
            tuned.setdefault(native.name, native)
            if names is not None:  # a short name means the first device that it is of
                tuned.setdefault(native.name.removesuffix(f"-{place}"), native)
    chosen = names if names is not None else [b.name for p in places for b in available_backends(p, precisions)]
    if tune_trials and not tuned.keys() & set(chosen):
        raise CollageError(f"--tune-trials is for TVM's kernels: add {natives[device].name} to --backends")
    return [tuned.get(name, name) for name in chosen]


def native_backend(device: str, tuning_records: Path, tune_trials: int = 0) -> Backend:
    """TVM for a kind of device, with its tuning records."""
    from collage.backends import native

    return native.native_backend(device, tune_trials=tune_trials, tuning_records=str(tuning_records))


def tuning_folder(records: str | None, device: str = "cpu") -> Path:
    """The folder of MetaSchedule's tuning records: one for each device, beside the records database and named after it.
    For a database on a server it lies beside the default one.
    """
    from collage.records import default_path

    suffix = ".tuning" if device == "cpu" else f".{device}.tuning"
    return (file_of(records) or default_path()).expanduser().with_suffix(suffix)
