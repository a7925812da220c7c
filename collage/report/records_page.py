"""The page of a records database: what it holds, how far repetitions agree, what failed, what disturbed sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from collage.report.records_overview import AGES, Overview, Session, totals
from collage.report.sections import Bar, Drawn, bars, section, table

#: Of charts and tables: sessions, and kinds of failures.
_DRAWN_SESSIONS, _SESSIONS, _FAILURES = 25, 300, 40
_STATUS = ("ok", "invalid")
_QUIET, _DISTURBED, _NOT_KNOWN = "quiet", "disturbed", "conditions not known"
#: Of deviations: upper ends, and what they are called.
_BINS = ((0.01, "up to 1%"), (0.02, "1 to 2%"), (0.05, "2 to 5%"), (0.1, "5 to 10%"), (0.2, "10 to 20%"))
_MORE = "more than 20%"


def headline(found: Overview) -> list[str]:
    """The first sentences of the page."""
    times = sorted(t for s in found.sessions.values() for t in (s.first, s.last))
    known = sum(s.known for s in found.sessions.values())
    disturbed = sum(s.disturbed for s in found.sessions.values())
    failed = sum(count for (_, status), count in found.kinds.items() if status == "invalid")
    lines = [f"{_number(found.records.total(), 'record')} of {_number(found.observations, 'observation')}"]
    if not times:
        return lines
    hosts, tuned = (sum(map(bool, names)) for names in (found.hosts, found.sessions))
    lines.append(
        f"Measured from {_time(times[0])} to {_time(times[-1])}, on {_number(hosts, 'known host')} in "
        f"{_number(tuned, 'known session')}"
    )
    quiet = f"; others disturbed {disturbed / known:.1%} of those whose conditions are known" if known else ""
    lines.append(f"{failed / found.observations:.1%} of the observations are failures{quiet}")
    return lines


def sections(found: Overview) -> list[Drawn]:
    """The sections of the page."""
    made = [_kinds(found), _hosts(found), _ages(found), _sessions(found)]
    made += [_repeated(found)] if found.repeated else []
    return [*made, _failures(found)] if found.failures else made


def _kinds(found: Overview) -> Drawn:
    rows = [
        (kind, f"{found.records[kind]:,}", f"{count:,}", f"{found.kinds[kind, 'invalid']:,}")
        for kind, count in totals(found.kinds)
    ]
    backends = [
        (name, f"{count:,}", f"{found.backends[name, 'invalid']:,}", f"{found.backends[name, 'invalid'] / count:.1%}")
        for name, count in totals(found.backends)
    ]
    return section(
        "what",
        "What was measured",
        charts=[_stacked("Observations of candidates by backend", found.backends, _STATUS)],
        tables=[
            table(("kind", "records", "observations", "failed"), rows, (1, 2, 3)),
            table(("backend", "observations", "failed", "share"), backends, (1, 2, 3), "Candidates by backend"),
        ],
    )


def _stacked(label: str, counts: Mapping[tuple[str, str], int], groups: Sequence[str]) -> Drawn | None:
    drawn = [
        Bar(name, counts.get((name, group), 0), number, f"{name}, {group}: {counts.get((name, group), 0):,}")
        for name, _ in totals(counts)
        for number, group in enumerate(groups)
    ]
    return bars(label, "observations", groups, drawn)


def _hosts(found: Overview) -> Drawn:
    rows = [
        (
            name or "not known",
            ", ".join(sorted(filter(None, host.models))) or "not known",
            f"{host.observations:,}",
            f"{len(host.sessions):,}",
            ", ".join(map(str, sorted(host.threads))),
        )
        for name, host in sorted(found.hosts.items(), key=lambda pair: -pair[1].observations)
    ]
    columns = ("host", "processor", "observations", "sessions", "threads")
    return section("hosts", "Where", tables=[table(columns, rows, (2, 3))])


def _ages(found: Overview) -> Drawn:
    kinds = sorted({kind for _, kind in found.ages})
    drawn = [
        Bar(age, found.ages[age, kind], number, f"{age}, {kind}: {found.ages[age, kind]:,}")
        for age in AGES
        for number, kind in enumerate(kinds)
    ]
    return section("ages", "Age", charts=[bars("Observations by age", "observations", kinds, drawn)])


def _sessions(found: Overview) -> Drawn:
    newest = sorted(found.sessions.items(), key=lambda pair: pair[1].last, reverse=True)
    drawn = []
    for name, session in newest[:_DRAWN_SESSIONS]:
        shares = (session.known - session.disturbed, session.disturbed, session.observations - session.known)
        label = f"{_time(session.first)} {name[:6]}".strip()
        drawn += [
            Bar(label, count, number, f"{label}, {what}: {count:,}")
            for number, (what, count) in enumerate(zip((_QUIET, _DISTURBED, _NOT_KNOWN), shares, strict=True))
        ]
    rows = [_session_cells(name, session) for name, session in newest[:_SESSIONS]]
    left = f" The newest {_DRAWN_SESSIONS} of {len(newest):,} are drawn." if len(newest) > _DRAWN_SESSIONS else ""
    columns = ("session", "host", "from", "to", "observations", "failed", "disturbed", "by")
    return section(
        "sessions",
        "Sessions",
        "A session is a tuning run. An observation is disturbed where other processes, other guests of the machine, "
        "a lower clock or distant cores took part." + left,
        charts=[
            bars(
                "Observations of each session, by whether they were disturbed",
                "observations",
                (_QUIET, _DISTURBED, _NOT_KNOWN),
                drawn,
            )
        ],
        tables=[table(columns, rows, (4, 5, 6), "All sessions" if len(newest) <= _SESSIONS else "The newest sessions")],
    )


def _session_cells(name: str, session: Session) -> tuple[str, ...]:
    disturbed = f"{session.disturbed / session.known:.1%}" if session.known else "not known"
    return (
        *(name[:16] or "not known", session.host or "not known", _time(session.first), _time(session.last)),
        *(f"{session.observations:,}", f"{session.failed:,}", disturbed),
        ", ".join(f"{condition} ({count:,})" for condition, count in session.beyond.most_common()),
    )


def _repeated(found: Overview) -> Drawn:
    backends = sorted(found.repeated)
    names = [*(name for _, name in _BINS), _MORE]
    counts = {(name, backend): 0 for name in names for backend in backends}
    for backend, own in found.repeated.items():
        for deviation in own.deviations:
            counts[next((name for limit, name in _BINS if deviation <= limit), _MORE), backend] += 1
    drawn = [
        Bar(name, counts[name, backend], number, f"{name}, {backend}: {counts[name, backend]:,}")
        for name in names
        for number, backend in enumerate(backends)
    ]
    rows = []
    for backend in backends:
        own = found.repeated[backend]
        middle, high = np.percentile(own.deviations, (50, 90))
        rows.append(
            (
                *(backend, f"{own.keys:,}", f"{own.in_several_sessions:,}", f"{len(own.deviations):,}"),
                *(f"{middle:.1%}", f"{high:.1%}", f"{own.held / len(own.deviations):.0%}"),
            )
        )
    columns = (
        *("backend", "repeated", "in several sessions", "observations"),
        *("median deviation", "90th percentile", "inside own interval"),
    )
    return section(
        "repeated",
        "Spread of repeated observations",
        "How far the latencies of one candidate, measured several times, are from their median. What is outside of its "
        "own 95% interval differs by more than its samples showed.",
        charts=[bars("Observations by deviation from the median of their key", "observations", backends, drawn)],
        tables=[table(columns, rows, range(1, len(columns)))],
    )


def _failures(found: Overview) -> Drawn:
    kinds = sorted(found.failures.items(), key=lambda pair: -pair[1].count)[:_FAILURES]
    names = sorted({b for _, f in kinds for b in f.backends})
    drawn = [
        Bar(kind, failure.backends[name], number, f"{kind}, {name}: {failure.backends[name]:,}")
        for kind, failure in kinds[:15]
        for number, name in enumerate(names)
    ]
    rows = [
        (
            kind,
            f"{failure.count:,}",
            ", ".join(f"{name} ({count:,})" for name, count in failure.backends.most_common()),
            failure.example.strip()[:300],
        )
        for kind, failure in kinds
    ]
    return section(
        "failures",
        "Failures",
        "What a backend could not build or run, or gave wrong numbers for.",
        charts=[bars("Failures by kind and backend", "observations", names, drawn)],
        tables=[table(("kind", "observations", "backends", "the reason of one"), rows, (1,), "All kinds")],
    )


def _time(timestamp: str) -> str:
    return timestamp[:16].replace("T", " ")


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
