"""`collage train`: learn a cost model from benchmark logs, and say how wrong it is.

Any estimator can be trained whose class has a classmethod `train(records, **parameters)` (`--designed` gives it more
records), and adapted whose class has `calibrate(records, path of a model or None)`. Both return an object with
`save(path)` and `errors()`; the latter has `rows` (name, count, mape, within_10, within_20, spearman, coverage),
`points` (backend, operator class, measured and predicted seconds) and `networks` (how many were left out in turn).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from collage.cli.exits import guarded
from collage.cli.options import Verbose
from collage.cli.outputs import require_writable

if TYPE_CHECKING:
    from collage.records import Record

_SQLITE = b"SQLite format 3\x00"


@guarded
def train(
    logs: Annotated[
        list[Path],
        typer.Argument(
            metavar="LOGS...", help="Benchmark logs (.jsonl, .jsonl.gz) or records databases.", show_default=False
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="COST.json", help="The model to write.", show_default=False)
    ],
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Also plot the errors (.html or .svg).", show_default=False)
    ] = None,
    designed: Annotated[
        list[Path] | None,
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
    verbose: Verbose = False,
) -> None:
    """Learn to predict latencies from benchmark logs, for prediction-only partitioning."""
    from collage import plugins
    from collage.errors import PluginError

    inputs = {f"LOG {number}": path for number, path in enumerate([*logs, *(designed or [])], 1)}
    require_writable({"-o": output, "--plot": plot}, {name: path for name, path in inputs.items() if path != output})
    if output.resolve() in {path.resolve() for path in inputs.values()}:
        raise typer.BadParameter(f"{output} would overwrite a log", param_hint="-o")
    if configurations not in ("newest", "all"):
        raise typer.BadParameter(f"newest or all, not {configurations}", param_hint="--configurations")
    name = "train" if calibrate is None else "calibrate"
    hook = getattr(plugins.load_class("estimators", estimator), name, None)
    if hook is None:
        raise PluginError(
            f"the estimator {estimator!r} cannot be {name.removesuffix('e')}ed: its class has no `{name}(records)`"
        )
    if calibrate is None:
        more = {
            **({"designed": _records(designed)} if designed else {}),
            **({"configurations": configurations} if configurations != "newest" else {}),
        }
        model = hook(_records(logs), seed=seed, **more)
    else:
        model = hook(_records(logs), None if calibrate == "shipped" else Path(calibrate))
    found = model.errors()
    if calibrate is None:
        print(f"Errors on networks left out in turn ({found.networks} networks, {found.rows[0].count:,} records)")
    else:
        print(f"Errors on records left out in turn ({found.rows[0].count:,} records)")
    for line in _table(found.rows):
        print(line)
    model.save(output)
    print(f"Wrote {output}")
    if plot is not None:
        plot.write_text(_plot(found.points, plot.suffix == ".svg"), encoding="utf-8")
        print(f"Wrote {plot}")


def _records(paths: Sequence[Path]) -> list[Record]:
    """All records of all files, in the files' order; warns of logs whose end is missing."""
    from collage.errors import RecordsError
    from collage.records import RecordDatabase, read_log

    result: list[Record] = []
    for path in paths:
        if not path.is_file():
            raise RecordsError(f"{path}: there is no such log or records database")
        with path.open("rb") as file:
            database = file.read(len(_SQLITE)) == _SQLITE
        if database:
            with RecordDatabase(path) as opened:
                result.extend(opened.matching(kind="candidate"))
        else:
            result.extend(read_log(path, lambda torn: print(f"warning: {torn}", file=sys.stderr)))
    return result


def _table(rows: Sequence[Any]) -> list[str]:
    """The lines of the table of errors."""
    lines = [f"{'':14}{'records':>8}{'MAPE':>8}{'<=10%':>8}{'<=20%':>8}{'Spearman':>10}{'coverage':>10}"]
    for row in rows:
        rank = "-" if row.spearman != row.spearman else f"{row.spearman:.3f}"
        lines.append(
            f"{row.name:14}{row.count:8,}{row.mape:8.1%}{row.within_10:8.0%}{row.within_20:8.0%}{rank:>10}{row.coverage:10.1%}"
        )
    return lines


_SIZE, _MARGIN = 360, 44
_COLOURS = ("#1b6ca8", "#d1495b", "#3a7d44", "#edae49", "#7d5ba6", "#5c5c5c")


def _plot(points: Sequence[tuple[str, str, float, float]], bare: bool) -> str:
    """Predicted against measured latency, one panel per operator class, one colour per backend: SVG, or HTML."""
    backends = sorted({point[0] for point in points})
    classes = sorted({point[1] for point in points})
    colour = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(backends)}
    exponents = [math.log10(value) for point in points for value in point[2:]]
    low, high = math.floor(min(exponents)), math.ceil(max(exponents) + 1e-9)
    across = min(3, len(classes))
    width, height = across * _SIZE, (1 + (len(classes) - 1) // across) * _SIZE + 30
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">']
    for i, name in enumerate(backends):
        parts.append(f'<text x="{_MARGIN + 140 * i}" y="20" fill="{colour[name]}">{escape(name)}</text>')
    for i, cls in enumerate(classes):
        panel = [point for point in points if point[1] == cls]
        parts.append(f'<g transform="translate({i % across * _SIZE},{i // across * _SIZE + 30})">')
        parts += [*_panel(cls, panel, colour, low, high), "</g>"]
    svg = "\n".join([*parts, "</svg>"])
    title = "Predicted against measured latency"
    if bare:
        return svg
    return f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><h1>{title}</h1>{svg}</html>'


def _panel(
    title: str, points: Sequence[tuple[str, str, float, float]], colour: dict[str, str], low: int, high: int
) -> list[str]:
    """One pair of logarithmic axes in seconds, with the diagonal on which a prediction is right."""
    inner = _SIZE - 2 * _MARGIN

    def place(seconds: float) -> float:
        return (math.log10(seconds) - low) / max(1, high - low) * inner

    end, base = _MARGIN + inner, _SIZE - _MARGIN
    error = sum(abs(p[3] / p[2] - 1) for p in points) / len(points)
    parts = [
        f'<rect x="{_MARGIN}" y="{_MARGIN}" width="{inner}" height="{inner}" fill="none" stroke="#999"/>',
        f'<path d="M{_MARGIN} {base}L{end} {_MARGIN}" stroke="#999"/>',
        f'<text x="{_MARGIN}" y="{_MARGIN - 8}">{escape(title)}: {len(points)} records, MAPE {error:.0%}</text>',
        f'<text x="{_MARGIN}" y="{base + 30}" font-size="11">measured, s</text>',
        f'<text x="4" y="{_MARGIN - 26}" font-size="11">predicted, s</text>',
    ]
    for exponent in range(low, high + 1):
        at = place(10.0**exponent)
        parts.append(f'<text x="{_MARGIN + at - 10:.1f}" y="{base + 15}" font-size="10">1e{exponent}</text>')
        parts.append(f'<text x="8" y="{base - at:.1f}" font-size="10">1e{exponent}</text>')
    for backend, _, measured, predicted in points:
        x, y = _MARGIN + place(measured), base - place(predicted)
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.8" fill="{colour[backend]}" fill-opacity="0.5"/>')
    return parts
