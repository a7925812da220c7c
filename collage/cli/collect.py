"""`collage records collect`: measure a designed set of workloads, to train a cost model on."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from collage.annotations.precision import BF16, INT8
from collage.cli.exits import guarded
from collage.cli.options import Device, Devices, Records, Runner, Target, Verbose, Workers, parse_names
from collage.cli.terminal import quiet

#: Hours of measuring should not be in anybody's way; on a machine that is idle otherwise it changes no latency.
_NICENESS = 5

_Models = Annotated[
    list[Path] | None, typer.Argument(metavar="MODEL.onnx...", help="The networks, as ONNX files.", show_default=False)
]
_Samples = Annotated[int, typer.Option(min=0, help="Variants of the networks' candidates, on other shapes.")]
_Designed = Annotated[
    int,
    typer.Option(min=0, help="Blocks that belong to no network, of which some candidates each are measured."),
]
_Families = Annotated[
    str | None,
    typer.Option(metavar="NAME,NAME,...", help="Kinds of these blocks; by default all, in turns.", show_default=False),
]
_Budget = Annotated[
    float | None,
    typer.Option(min=0.0, metavar="SECONDS", help="Time after which nothing more is started.", show_default=False),
]
_Backends = Annotated[
    str | None,
    typer.Option(metavar="NAME,NAME,...", help="Backends to measure; by default all available.", show_default=False),
]
_Threads = Annotated[
    int | None,
    typer.Option(min=1, help="Threads of the deployment; by default all processors.", show_default=False),
]
_CostModel = Annotated[
    Path | None,
    typer.Option(
        metavar="COST.json",
        help="A cost model: draw variants more often where it is unsure or wrong.",
        show_default=False,
    ),
]
_Precisions = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,NAME,...",
        help="Less precision than float32 to measure as well: bf16, int8.",
        show_default=False,
    ),
]


@guarded
def collect(
    models: _Models = None,
    records: Records = None,
    samples: _Samples = 500,
    designed: _Designed = 0,
    families: _Families = None,
    budget: _Budget = None,
    seed: Annotated[int, typer.Option(help="Of what is drawn.")] = 0,
    backends: _Backends = None,
    device: Device = "cpu",
    devices: Devices = None,
    threads: _Threads = None,
    model: _CostModel = None,
    precisions: _Precisions = None,
    workers: Workers = None,
    runner: Runner = None,
    target: Target = None,
    verbose: Verbose = False,
) -> None:
    """Measure the candidates of networks, and variants of them on other shapes, that the records do not hold yet."""
    if not models and not designed:
        raise typer.BadParameter("name a network (MODEL.onnx), or blocks to be designed (--designed N)")
    names = parse_names(backends, "--backends")
    kinds = parse_names(families, "--families")
    places = parse_names(devices, "--devices") or [device]
    less = parse_names(precisions, "--precisions") or []
    if wrong := sorted(set(less) - {BF16, INT8}):
        raise typer.BadParameter(f"--precisions takes {BF16} and {INT8}, not {', '.join(wrong)}")
    if hasattr(os, "nice"):
        os.nice(_NICENESS)
    started = time.monotonic()
    with quiet(verbose) as terminal:
        from collage.without_torch import import_tvm_without_torch

        import_tvm_without_torch()
        from collage.backends.resolve import available_backends
        from collage.cli.progress_bar import ProgressBar, duration
        from collage.cli.tune import configured_backends
        from collage.collect.collection import collect as run
        from collage.records import default_path
        from collage.records.places import place_of

        path = records or str(default_path())
        chosen = configured_backends(names, path, 0, *places)
        if names is None:
            chosen += [backend.name for place in places for backend in available_backends(place, less)]
        found = run(
            models or [],
            chosen,
            records=path,
            samples=samples,
            designed=designed,
            families=kinds,
            budget_s=budget,
            seed=seed,
            threads=threads,
            devices=places,
            model=model,
            precisions=less,
            workers=workers,
            runner=runner,
            target=target,
            reporter=ProgressBar(terminal),
        )
    print(
        f"{place_of(path, 0.0).name}: {found.measured:,} workloads measured ({found.invalid:,} invalid), "
        f"{found.known:,} were known; "
        f"{found.variants:,} variants drawn, and {found.designed:,} structures of designed blocks; "
        f"{found.repeated:,} measured twice, {found.replaced:,} of them replaced; "
        f"{duration(time.monotonic() - started)}"
    )
    for note in found.notes:
        print(note)
    if not found.complete:
        print("The time was up before everything was measured: the same command goes on from here.")
