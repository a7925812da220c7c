"""`collage train`: learn a cost model from benchmark logs, and say how wrong it is.

Any estimator can be trained that is `Trainable` (`collage.cost.estimator`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from platform import python_version
from typing import TYPE_CHECKING, Annotated, cast

import typer

from collage.cli.exits import guarded
from collage.cli.options import Html, Verbose, file_of, require_writable

if TYPE_CHECKING:
    from collage.cost.estimator import Configurations, CostEstimator, TrainedModel
    from collage.records import Record

#: Seconds in which a scheduler has to answer.
_CONNECT_S = 15.0


@guarded
def train(
    logs: Annotated[
        list[str],
        typer.Argument(
            metavar="LOGS...",
            help="Benchmark logs (.jsonl, .jsonl.gz, .parquet) or records databases.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="COST.json", help="The model to write.", show_default=False)
    ],
    designed: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LOG",
            help="A log of designed blocks (`collage records collect --designed`); may be repeated.",
            show_default=False,
        ),
    ] = None,
    estimator: Annotated[str, typer.Option(help="The estimator to train.")] = "learned",
    seed: Annotated[int, typer.Option(help="Of the model's random numbers.")] = 0,
    configurations: Annotated[
        str,
        typer.Option(
            metavar="newest|all",
            help="Learn from records of each backend's newest version and configuration (and of equivalent ones), "
            "or of all.",
        ),
    ] = "newest",
    calibrate: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL.json|shipped",
            help="Adapt this model, or the one that ships with Collage, to the machine of a few records.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="The scheduler of a Dask cluster that fits the models; what is learned is the same.",
            show_default=False,
        ),
    ] = None,
    report: Html = None,
    verbose: Verbose = False,
) -> None:
    """Learn to predict latencies from benchmark logs, for prediction-only partitioning."""
    from collage import plugins
    from collage.cost.estimator import Trainable
    from collage.errors import PluginError
    from collage.report.html import write_sections
    from collage.report.training import error_lines, headline, sections

    inputs = {f"LOG {number}": file_of(log) for number, log in enumerate([*logs, *(designed or [])], 1)}
    require_writable(
        {"-o": output, "--report": report}, {name: path for name, path in inputs.items() if path != output}
    )
    if output.resolve() in {path.resolve() for path in inputs.values() if path is not None}:
        raise typer.BadParameter(f"{output} would overwrite a log", param_hint="-o")
    if configurations not in ("newest", "all"):
        raise typer.BadParameter(f"newest or all, not {configurations}", param_hint="--configurations")
    trainable: type[CostEstimator] = plugins.load_class("estimators", estimator)
    if not issubclass(trainable, Trainable):
        raise PluginError(
            f"the estimator {estimator!r} cannot be {'trained' if calibrate is None else 'calibrated'}: its class is "
            "no `collage.cost.estimator.Trainable`"
        )
    model: TrainedModel
    with _fitted_by(workers):
        if calibrate is None:
            model = trainable.train(
                _records(logs),
                _records(designed or []),
                seed=seed,
                configurations=cast("Configurations", configurations),
            )
        else:
            model = trainable.calibrate(_records(logs), None if calibrate == "shipped" else Path(calibrate))
    found = model.errors()
    if calibrate is None:
        print(f"Errors on networks left out in turn ({found.networks} networks, {found.rows[0].count:,} records)")
    else:
        print(f"Errors on records left out in turn ({found.rows[0].count:,} records)")
    lines = error_lines(found)
    print("\n".join(lines))
    model.save(output)
    print(f"Wrote {output}")
    if report is not None:
        about = sections(found, plugins.names("backends"))
        write_sections(headline(found), about, report, output.name, "\n".join(lines))
        print(f"Wrote {report}")


@contextmanager
def _fitted_by(workers: str | None) -> Iterator[None]:
    """What joblib does in parallel is done by the workers of a Dask cluster, where one is given."""
    if workers is None:
        yield
        return
    from joblib import parallel_config

    from collage.errors import CollageError

    try:
        from distributed import Client
    except ImportError as error:
        raise CollageError("--workers needs Dask: `pip install collage-tvm[scale]`") from error
    try:
        client = Client(workers, timeout=_CONNECT_S, set_as_default=False, name="collage")
    except (OSError, ValueError) as error:  # nobody answers, or no address
        raise CollageError(f"{workers}: there is no scheduler of a Dask cluster ({error})") from error
    with client:
        others = client.run(_versions)
        if not others:
            raise CollageError(f"{workers}: the cluster has no workers")
        ours = _versions()
        for worker, theirs in others.items():
            if different := [f"{name} {theirs[name]}, not {ours[name]}" for name in ours if theirs[name] != ours[name]]:
                raise CollageError(f"the worker {worker} has {'; '.join(different)}")
        with parallel_config("dask", client=client):
            yield


def _versions() -> dict[str, str]:
    """Of what decides the bytes of a model."""
    packages = ("joblib", "numpy", "scikit-learn", "scipy", "xgboost")
    return {"python": python_version(), **{name: metadata.version(name) for name in packages}}


def _records(logs: Sequence[str]) -> list[Record]:
    """All records of all files, in the files' order; warns of logs whose end is missing."""
    from collage.errors import RecordsError
    from collage.records import read_records

    result: list[Record] = []
    for log in logs:
        path = file_of(log)
        if path is not None and not path.is_file():
            raise RecordsError(f"{path}: there is no such log or records database")
        result.extend(read_records(log, lambda torn: print(f"warning: {torn}", file=sys.stderr)))
    return result
