"""Records by the million: `python -m benchmarks.records_scaling PATH|URL ... [--observations 1000000] [--out FILE]`.

Each database is filled with observations that look like those of networks: batches of candidates of one structure, a
few descriptions that repeat, several sessions of each key. Measured are inserts by one writer and by several at once,
look-ups of costs and of whole records in a full database, its statistics and its page, and what an observation takes of
the disk. Making observations is not timed. A PostgreSQL server may be of any place; `tests/postgres_server.py` starts
one for `--postgres`, which syncs its disk at each commit as SQLite does.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from benchmarks.referee.origin import commit_of
from collage.cost.cost import Cost
from collage.records import Record, RecordDatabase, RecordKey
from collage.report.records_overview import overview

#: Candidates that are stored at a time, as after one job; sessions of a key; structures of one description.
_BATCH, _SESSIONS, _SHARED = 4, 3, 50
#: Observations that are stored at a time, as of a log.
_BULK = 2_000
_LOOK_UPS, _KEYS = 200, 500


@dataclass(frozen=True)
class Result:
    """Of one database, how many a second.

    Attributes
    ----------
    bulk
        Observations stored 2,000 at a time.
    one_writer, several_writers
        Observations stored as they are measured, a few at a time.
    costs, records
        Looked up, hundreds at a time.
    bulk_last
        Of `bulk`, the last twentieth: the database is nearly full.
    stats
        Seconds of the statistics.
    overview
        Observations counted for the page.
    peak_bytes
        Memory of this process at most, from its start on.
    bytes_each
        Of an observation on disk.
    load
        Processes that want a processor, at the start and at the end (`os.getloadavg`).
    """

    database: str
    observations: int
    writers: int
    bulk: float
    bulk_last: float
    one_writer: float
    several_writers: float
    costs: float
    records: float
    stats: float
    overview: float
    peak_bytes: int
    bytes_each: float
    load: tuple[float, float]


def observation(number: int) -> Record:
    """One of a stream without end: every third of a key that was there."""
    key, session = number // _SESSIONS, number % _SESSIONS
    description = {"nodes": [{"op": "relax.nn.conv2d", "shape": [1, 64, key // _SHARED, 56]}] * 6}
    return Record.of(
        key_of(key),
        Cost(1e-4 + key * 1e-9, 1e-7, 9, "converged"),
        timings=[1e-4 + key * 1e-9 + i * 1e-8 for i in range(9)],
        label="onednn conv2d+relu",
        operators=("relax.nn.conv2d", "relax.nn.relu"),
        description=description,
        device={"model": "a processor", "cores": 2, "host": f"{key % 100:012x}"},
        session=f"{session}",
        conditions={"load": 0.0, "steal": 0.0, "canary": 1.0},
    )


def key_of(number: int) -> RecordKey:
    return RecordKey(
        "candidate", f"structure {number}", "onednn", "3.9", "c0ffee", (), "cpu-x86_64-2-0", 2, "0.27.0", "{}"
    )


def batches(first: int, count: int, size: int) -> Iterator[list[Record]]:
    made = map(observation, range(first, first + count))
    while batch := list(islice(made, size)):
        yield batch


def measure(place: str, count: int, writers: int) -> Result:
    """Fill a database that is empty, and look up what is in it."""
    in_batches, before = min(count // 20, 20_000), os.getloadavg()[0]
    with RecordDatabase(place) as database:
        first = count - 2 * in_batches
        bulk, last = _bulk(database, first)
        few = list(batches(first, in_batches, _BATCH))
        alone = in_batches / _seconds(lambda: [database.put_many(batch) for batch in few])
        together = _together(place, count - in_batches, in_batches, writers)
        pick, keys = random.Random(0), count // _SESSIONS
        asked = [[key_of(pick.randrange(keys)) for _ in range(_KEYS)] for _ in range(_LOOK_UPS)]
        costs = _LOOK_UPS * _KEYS / _seconds(lambda: [database.costs(part) for part in asked])
        whole = asked[: _LOOK_UPS // 10]
        records = len(whole) * _KEYS / _seconds(lambda: [database.get_many(part) for part in whole])
        stats = database.stats()
        return Result(
            database=stats.name,
            observations=stats.observations,
            writers=writers,
            bulk=bulk,
            bulk_last=last,
            one_writer=alone,
            several_writers=together,
            costs=costs,
            records=records,
            stats=_seconds(database.stats),
            overview=stats.observations / _seconds(lambda: overview(database.observations())),
            peak_bytes=1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            bytes_each=stats.size_bytes / stats.observations,
            load=(before, os.getloadavg()[0]),
        )


def _bulk(database: RecordDatabase, count: int) -> tuple[float, float]:
    """Observations a second, of all and of the last twentieth."""
    taken = [(len(batch), _seconds(partial(database.put_many, batch))) for batch in batches(0, count, _BULK)]
    last = taken[-max(1, len(taken) // 20) :]
    each, of_last = (sum(n for n, _ in part) / sum(seconds for _, seconds in part) for part in (taken, last))
    return each, of_last


def _together(place: str, first: int, count: int, writers: int) -> float:
    """Observations a second of several writers, each with a connection of its own."""
    own = count // writers
    shares = [list(batches(first + i * own, own, _BATCH)) for i in range(writers)]

    def write(share: list[list[Record]]) -> None:
        with RecordDatabase(place, timeout_s=600) as database:
            for batch in share:
                database.put_many(batch)

    def all_of_them() -> None:
        with ThreadPoolExecutor(writers) as pool:
            list(pool.map(write, shares))  # raises what a writer raised

    return own * writers / _seconds(all_of_them)


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="*", help="paths and addresses of empty databases")
    parser.add_argument("--postgres", action="store_true", help="start a server for this run")
    parser.add_argument("--observations", type=int, default=1_000_000)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        places = list(options.places)
        if options.postgres:
            from tests.postgres_server import PostgresServer

            server = PostgresServer(fsync=True)
            stack.callback(server.stop)
            places.append(server.new_database())
        commit, lines = commit_of(Path(__file__).parents[1]), []
        for place in places:
            lines.append(
                json.dumps({"commit": commit, **asdict(measure(place, options.observations, options.writers))})
            )
            print(lines[-1], flush=True)
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
