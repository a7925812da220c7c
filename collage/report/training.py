"""The page of a cost model that was just trained: how wrong it is on what it had not seen, and what it never saw."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from collage.cost.estimator import ErrorReport, ErrorRow, Prediction
from collage.report.facts import short_name
from collage.report.sections import Drawn, Point, Range, curve, evenly, intervals, scatter, section, table

#: Of charts: points, rows and lines; of a table: the worst predictions.
_POINTS, _ROWS, _LINES, _WORST = 1_200, 40, 6, 20
_OF_RATIOS = "predicted / measured"
_COLUMNS = ("records", "MAPE", "median ratio", "80% of ratios", "inside interval")

_Groups = Mapping[str, Sequence[Prediction]]


class _Errors(NamedTuple):
    """Of some predictions: how many, the mean absolute percentage error, the median of predicted over measured with the
    tenth and the ninetieth percentile, and the share of latencies inside of their intervals.
    """

    records: int
    mape: float
    median: float
    low: float
    high: float
    inside: float

    @classmethod
    def of(cls, found: Sequence[Prediction]) -> _Errors:
        ratios = np.array([p.predicted / p.seconds for p in found])
        low, median, high = np.percentile(ratios, (10, 50, 90)).tolist()
        inside = sum(p.low <= p.seconds <= p.high for p in found) / len(found)
        return cls(len(found), float(np.abs(ratios - 1.0).mean()), median, low, high, inside)

    @property
    def cells(self) -> tuple[str, ...]:
        spread = f"{self.low:.3g} to {self.high:.3g}"
        return (f"{self.records:,}", f"{self.mape:.1%}", f"{self.median:.3f}", spread, f"{self.inside:.1%}")

    def drawn(self, name: str, group: int = 0) -> Range:
        about = f"{name}: median {self.median:.3f}, {self.low:.3g} to {self.high:.3g}, of {self.records:,} records"
        return Range(name, self.median, self.low, self.high, group, about)


def error_lines(report: ErrorReport) -> list[str]:
    """The lines of the table of errors, for a terminal."""
    lines = [f"{'':14}{'records':>8}{'MAPE':>8}{'<=10%':>8}{'<=20%':>8}{'Spearman':>10}{'coverage':>10}"]
    for row in report.rows:
        shares = f"{row.mape:8.1%}{row.within_10:8.0%}{row.within_20:8.0%}{_rank(row):>10}{row.coverage:10.1%}"
        lines.append(f"{row.name:14}{row.count:8,}{shares}")
    return lines


def headline(report: ErrorReport) -> list[str]:
    """The first sentences of the page."""
    whole = report.rows[0]
    promised = "" if math.isnan(report.coverage) else f"; {report.coverage:.0%} are promised"
    return [
        f"Predictions of records that the model had not seen are off by {whole.mape:.1%} on average",
        f"{whole.count:,} records in {report.networks:,} groups, each of which was left out in turn; "
        f"{whole.within_20:.0%} are predicted within 20%",
        f"{whole.coverage:.1%} of the latencies lie inside of their intervals{promised}",
    ]


def sections(report: ErrorReport, backends: Collection[str]) -> list[Drawn]:
    """The sections of the page; `backends` are those that are installed."""
    of_name, of_network = (_by(report.predictions, what) for what in ("name", "network"))
    found = [_by_backend(report, of_name)]
    if 1 < len(of_network) <= len(report.predictions) / 2:  # else each record was left out by itself
        found.append(_by_network(of_network))
    if report.predictions:
        found.append(_scatter(report.predictions, list(of_name)))
    if report.calibration:
        found.append(_calibration(report))
    return [*found, _unseen(report, of_name, backends)]


def _by(predictions: Sequence[Prediction], what: str) -> dict[str, list[Prediction]]:
    """In groups, the largest one first."""
    found: dict[str, list[Prediction]] = {}
    for prediction in predictions:
        found.setdefault(str(getattr(prediction, what)), []).append(prediction)
    return dict(sorted(found.items(), key=lambda pair: -len(pair[1])))


def _by_backend(report: ErrorReport, of_name: _Groups) -> Drawn:
    errors = {name: _Errors.of(found) for name, found in of_name.items()}
    ranges = [found.drawn(name, number) for number, (name, found) in enumerate(errors.items())]
    rows = [
        (row.name, f"{row.count:,}", f"{row.mape:.1%}", f"{row.within_10:.0%}", f"{row.within_20:.0%}", _rank(row))
        for row in report.rows
    ]
    return section(
        "backends",
        "Errors by backend",
        "Of each record the model that predicts it was trained without the network that it belongs to. Bars hold 80% "
        "of the ratios, a mark is their median.",
        charts=[intervals("Predicted over measured latencies of each backend", _OF_RATIOS, list(errors), ranges)],
        tables=[
            table(("backend", *_COLUMNS), [(name, *found.cells) for name, found in errors.items()], (1, 2, 3, 5)),
            table(
                ("of", "records", "MAPE", "within 10%", "within 20%", "Spearman"),
                rows,
                (1, 2, 3, 4, 5),
                "By class of operator, with rank correlations",
            ),
        ],
    )


def _rank(row: ErrorRow) -> str:
    return "-" if math.isnan(row.spearman) else f"{row.spearman:.3f}"


def _by_network(of_network: _Groups) -> Drawn:
    names = {number: _network(number, found) for number, found in of_network.items()}
    errors = {number: _Errors.of(found) for number, found in of_network.items()}
    drawn = [errors[number].drawn(names[number]) for number in list(errors)[:_ROWS]]
    rows = [
        (names[number], *errors[number].cells, _span(found), _mostly(found)) for number, found in of_network.items()
    ]
    more = f" The largest {_ROWS} are drawn." if len(errors) > _ROWS else ""
    return section(
        "networks",
        "Errors by network",
        "Records do not name their network: those of one tuning run, with no pause between them, count as one." + more,
        charts=[intervals("Predicted over measured latencies of each network", _OF_RATIOS, ["networks"], drawn)],
        tables=[table(("network", *_COLUMNS, "measured", "mostly"), rows, (1, 2, 3, 5), "All networks")],
    )


def _network(number: str, found: Sequence[Prediction]) -> str:
    return "designed blocks" if number == "-1" else f"{int(number) + 1}: {_mostly(found, 2)}"


def _mostly(found: Sequence[Prediction], most: int = 4) -> str:
    counts = Counter(short_name(operator) for p in found for operator in p.record.operators)
    return ", ".join(name for name, _ in counts.most_common(most))


def _span(found: Sequence[Prediction]) -> str:
    times = sorted(p.record.timestamp[:16].replace("T", " ") for p in found)
    return times[0] if times[0] == times[-1] else f"{times[0]} to {times[-1]}"


def _scatter(predictions: Sequence[Prediction], names: Sequence[str]) -> Drawn:
    ordered = sorted(predictions, key=lambda p: (p.name, p.seconds))
    points = [
        Point(
            *(p.seconds * 1e3, p.predicted * 1e3, p.low * 1e3, p.high * 1e3, names.index(p.name)),
            about=f"{p.record.label}: measured {p.seconds * 1e3:.4g} ms, predicted {_expected(p)}",
        )
        for p in evenly(ordered, _POINTS)
    ]
    worst = sorted(predictions, key=lambda p: -abs(math.log(p.predicted / p.seconds)))[:_WORST]
    rows = [
        (p.name, p.record.label, f"{p.seconds * 1e3:.4g}", _expected(p), f"{p.predicted / p.seconds:.3g}")
        for p in worst
    ]
    drawn = f"{len(points):,} of {len(predictions):,} records are drawn. " if len(points) < len(predictions) else ""
    return section(
        "scatter",
        "Predicted against measured",
        f"{drawn}A record on the line is predicted exactly; its bar is the interval.",
        charts=[scatter("Predicted against measured latency", "measured, ms", "predicted, ms", names, points)],
        tables=[
            table(("backend", "workload", "measured, ms", "predicted, ms", "ratio"), rows, (2, 4), "The largest errors")
        ],
    )


def _expected(found: Prediction) -> str:
    return f"{found.predicted * 1e3:.4g} ({found.low * 1e3:.3g} to {found.high * 1e3:.3g})"


def _calibration(report: ErrorReport) -> Drawn:
    of: dict[str, list[tuple[float, float]]] = {}
    for name, nominal, observed in report.calibration:
        of.setdefault(name, []).append((nominal, observed))
    levels = list(dict.fromkeys(nominal for _, nominal, _ in report.calibration))
    rows = []
    for name, points in of.items():
        observed_at = dict(points)
        rows.append((name, *(f"{observed_at[level]:.1%}" if level in observed_at else "" for level in levels)))
    return section(
        "calibration",
        "Calibration of intervals",
        "The share of latencies that intervals of a nominal coverage hold: on the diagonal where they are as wide as "
        "they should be, below it where they are too narrow. The width comes from the other networks, and large "
        "networks do not drown small ones.",
        charts=[
            curve(
                "Observed against nominal coverage",
                "nominal coverage",
                "observed coverage",
                [(name, of[name]) for name in list(of)[: _LINES + 1]],
            )
        ],
        tables=[
            table(("of", *(f"{level:.0%}" for level in levels)), rows, range(1, len(levels) + 1), "Observed coverages")
        ],
    )


def _unseen(report: ErrorReport, of_name: _Groups, backends: Collection[str]) -> Drawn:
    learned = {name.partition("+")[0] for name in of_name}
    without = sorted(set(backends) - learned)
    seen = [
        (
            name,
            f"{len(found):,}",
            _least_to_most([len(p.record.operators) for p in found]),
            _least_to_most([p.seconds * 1e3 for p in found]),
            ", ".join(map(str, sorted({p.record.key.threads for p in found}))),
        )
        for name, found in of_name.items()
    ]
    unseen = [
        (where, str(len(operators)), ", ".join(short_name(operator) for operator in operators))
        for where, operators in report.unseen.items()
    ]
    return section(
        "unseen",
        "What it has never seen",
        f"Backends that are installed and of which it has no records: {', '.join(without) or 'none'}."
        if of_name
        else "The model does not say what it was trained on.",
        "Of operators without records, and beyond the sizes below, its predictions are guesses." if of_name else "",
        tables=[
            table(("backend", "records", "operators in one", "latencies, ms", "threads"), seen, (1,)),
            table(("no records on", "operators", "which"), unseen, (1,), "Operators without records"),
        ]
        if of_name
        else [],
    )


def _least_to_most(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
