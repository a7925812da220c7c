"""Records by the million: `python -m benchmarks.records_scaling PATH|URL ... [--observations 1000000] [--out FILE]`.

Each database is filled with observations that look like those of networks: batches of candidates of one structure, a
few descriptions that repeat, several sessions of each key. Measured are inserts by one writer and by several at once,
look-ups of costs and of whole records in a full database, and what an observation takes of the disk. A PostgreSQL
server may be of any place; `tests/postgres_server.py` starts one for `--postgres`.
"""

from __future__ import annotations

import argparse
import json
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from collage.cost.cost import Cost
from collage.records import Record, RecordDatabase, RecordKey

#: Candidates that are stored at a time, as after one job; sessions of a key; structures of one description.
_BATCH, _SESSIONS, _SHARED = 4, 3, 50
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
    bytes_each
        Of an observation on disk.
    """

    database: str
    observations: int
    writers: int
    bulk: float
    one_writer: float
    several_writers: float
    costs: float
    records: float
    bytes_each: float


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
    in_batches = min(count // 20, 20_000)
    with RecordDatabase(place) as database:
        begin = time.perf_counter()
        for batch in batches(0, count - 2 * in_batches, 2_000):
            database.put_many(batch)
        bulk = (count - 2 * in_batches) / (time.perf_counter() - begin)
        begin = time.perf_counter()
        for batch in batches(count - 2 * in_batches, in_batches, _BATCH):
            database.put_many(batch)
        alone = in_batches / (time.perf_counter() - begin)
        together = _together(place, count - in_batches, in_batches, writers)
        pick, keys = random.Random(0), count // _SESSIONS
        begin = time.perf_counter()
        for _ in range(_LOOK_UPS):
            found = database.costs(key_of(pick.randrange(keys)) for _ in range(_KEYS))
            assert found
        costs = _LOOK_UPS * _KEYS / (time.perf_counter() - begin)
        begin = time.perf_counter()
        for _ in range(_LOOK_UPS // 10):
            database.get_many(key_of(pick.randrange(keys)) for _ in range(_KEYS))
        records = _LOOK_UPS // 10 * _KEYS / (time.perf_counter() - begin)
        stats = database.stats()
        size = stats.size_bytes / stats.observations
        return Result(stats.name, stats.observations, writers, bulk, alone, together, costs, records, size)


def _together(place: str, first: int, count: int, writers: int) -> float:
    """Observations a second of several writers, each with a connection of its own."""
    own = count // writers

    def write(start: int) -> None:
        with RecordDatabase(place, timeout_s=600) as database:
            for batch in batches(start, own, _BATCH):
                database.put_many(batch)

    threads = [threading.Thread(target=write, args=(first + i * own,)) for i in range(writers)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return own * writers / (time.perf_counter() - begin)


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

            server = PostgresServer()
            stack.callback(server.stop)
            places.append(server.new_database())
        results = [measure(place, options.observations, options.writers) for place in places]
    for result in results:
        print(json.dumps(asdict(result)))
    if options.out is not None:
        options.out.write_text("".join(json.dumps(asdict(result)) + "\n" for result in results))


if __name__ == "__main__":
    main()
