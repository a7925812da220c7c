"""Records on a server and a fleet, of which everything fails: the plan is that of one process from the same records."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from time import sleep
from typing import Any

import psutil
import pytest

import collage
from collage.measure.fleet import Fleet
from collage.measure.fleet.cluster import Cluster
from collage.measure.fleet.dispatch import Member, Pending
from collage.records import RecordDatabase
from tests.cut_wire import Wire
from tests.dask_cluster import DaskCluster
from tests.e2e.networks import convolution_relu
from tests.postgres_server import PostgresServer

pytestmark = [pytest.mark.scale, pytest.mark.long, pytest.mark.timeout(1800)]

#: Hangs end in time for the next fault; what ends a worker is rarer than what gives a question up.
FAULTS = {"cut": 12, "database": 10, "server": 2, "worker": 2, "hang": 3, "timing process": 2, "scheduler": 1}


class Trouble:
    """Does damage, one piece after the other, at moments inside of what the fleet is asked."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.cluster = DaskCluster(folder, 3, supervised=True)
        stack.callback(self.cluster.close)
        self.server = PostgresServer()
        stack.callback(self.server.stop)
        self.wire = Wire(self.cluster.port)
        stack.callback(self.wire.close)
        self._pick = random.Random(0)
        self.left = list(Counter(FAULTS).elements())
        self._pick.shuffle(self.left)
        self.done: list[Future[None]] = []
        self._hand = stack.enter_context(ThreadPoolExecutor(1))

    def soon(self) -> None:
        """Does the next one, or none this time."""
        if self.left and self._pick.random() < 0.7:
            kind, delay = self.left.pop(), self._pick.uniform(0.0, 0.5)
            self.done.append(self._hand.submit(partial(self._do, kind, delay)))

    def _do(self, kind: str, delay: float) -> None:
        sleep(delay)
        number = self._pick.randrange(3)
        if kind == "cut":
            self.wire.cut()
        elif kind == "database":
            cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'collage'"
            self.server.run(cut)
        elif kind == "server":
            self.server.kill()
            self.server.start()
        elif kind == "worker":
            self.cluster.kill(number)
        elif kind == "hang":
            self.cluster.stop(number, 4.0)
        elif kind == "timing process":
            for child in _children(self.cluster.workers[number].pid):
                child.kill()
        else:
            self.cluster.kill_scheduler()


def _children(process: int) -> list[psutil.Process]:
    try:
        return psutil.Process(process).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


@pytest.fixture
def trouble(tmp_path: Path) -> Iterator[Trouble]:
    with ExitStack() as stack:
        yield Trouble(tmp_path, stack)


def test_the_plan_is_that_of_one_process_from_the_same_records(
    trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Cluster.ask

    def ask_in_trouble(self: Cluster, member: Member, *rest: Any, **options: Any) -> Pending[Any]:
        pending = ask(self, member, *rest, **options)
        trouble.soon()
        return pending

    monkeypatch.setattr(Cluster, "ask", ask_in_trouble)
    # A worker that hangs is missed in a moment, and all are waited for as long as a loaded machine takes.
    monkeypatch.setattr("collage.measure.fleet.fleet.Fleet", partial(Fleet, silence_s=2.0, patience_s=500.0))
    # Three workers of one machine that is never quiet: that one looks slower says nothing.
    monkeypatch.setattr("collage.measure.fleet.fleet.has_drifted", lambda ratio: False)
    address = trouble.server.new_database()
    options: dict[str, Any] = {"threads": 1, "effort": "thorough", "confirm_end_to_end": False, "records": address}

    def plan(channels: int, workers: str | None) -> Any:
        return collage.partition(convolution_relu(channels), ["onnxruntime", "tvm"], workers=workers, **options)

    def stored() -> list[tuple[str, str]]:
        with RecordDatabase(address) as database:
            return sorted((o.key.digest, o.status) for o in database.observations())

    for channels in count(4, 4):
        by_fleet = plan(channels, trouble.wire.address)
        before = stored()
        alone = plan(channels, None)
        assert by_fleet.partitions == alone.partitions
        assert by_fleet.searched_cost == alone.searched_cost
        assert stored() == before, "nothing had been lost"
        assert len(set(before)) == len(before), "nothing is there twice"
        assert {status for _, status in before} == {"ok"}, "nothing was condemned"
        if not trouble.left:
            break
    for fault in trouble.done:
        fault.result()
    assert len(trouble.done) == sum(FAULTS.values())
