"""`collage train`: learn a cost model from benchmark logs, and say how wrong it is.

Any estimator can be trained that is `Trainable` (`collage.cost.estimator`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from collage.cli.exits import guarded
from collage.cli.options import Html, Verbose, file_of, require_writable

if TYPE_CHECKING:
    from collage.cost.estimator import Configurations, CostEstimator, TrainedModel
    from collage.records import Record


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
