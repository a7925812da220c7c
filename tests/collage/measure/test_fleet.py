"""A cluster of three workers builds and times, and what happens to them costs time only."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import collage
from collage.backends.onnx.onnxruntime import ONNXRuntimeBackend
from collage.backends.tvm.backend import TVMBackend
from collage.cost.estimator import Workload
from collage.errors import CollageError
from collage.measure.fleet import Fleet
from collage.measure.fleet.cluster import Cluster
from collage.measure.fleet.dispatch import Crowd, Member, Pending, dispatch
from collage.measure.host import host_id
from collage.progress import Reporter
from collage.records import RecordDatabase
from estimators.measured import MeasuredEstimator
from tests.dask_cluster import DaskCluster
from tests.e2e.efforts import EVERYTHING
from tests.e2e.networks import convolution_relu

pytestmark = pytest.mark.scale

#: A worker that claims to be of another kind, and one whose clock is lowered.
UNLIKE = "import collage.measure.fleet.identity as i\ni.software_versions = lambda: {'tvm': '0.1'}\n"
DRIFTING = "import collage.measure.fleet.remote as r\nr.canary_seconds = lambda: 1.0\n"


class Listener(Reporter):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, line: str) -> None:
        self.said.append(line)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    """Left as it is by the tests that use it."""
    made = DaskCluster(tmp_path_factory.mktemp("dask"))
    yield made
    made.close()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Callable[[int], DaskCluster]]:
    """Makes clusters that a test may break."""
    made: list[DaskCluster] = []

    def make(workers: int) -> DaskCluster:
        made.append(DaskCluster(tmp_path, workers))
        return made[-1]

    yield make
    for each in made:
        each.close()


def workloads(count: int) -> list[Workload]:
    modules = [convolution_relu(4 + 2 * i) for i in range(count)]
    return [
        Workload.of_module(module, backend) for module in modules for backend in (ONNXRuntimeBackend(), TVMBackend())
    ]


def test_what_the_fleet_measures_is_recorded_like_any_other(cluster: DaskCluster, tmp_path: Path) -> None:
    asked = workloads(2)
    with Fleet(cluster.address, Reporter()) as fleet, RecordDatabase(tmp_path / "r.db") as database:
        wait_for_members(fleet, 3)
        estimator = MeasuredEstimator(database, workers=fleet)
        costs = estimator.estimate(asked)
        assert all(cost.is_finite and cost.samples > 0 for cost in costs), costs
        assert any("a fleet timed sub-graphs" in note and host_id() in note for note in estimator.notes(asked))
        observed = list(database.observations())
        assert len(observed) == 4 and all(o.device["host"] == host_id() for o in observed)
        assert database.stats().by_host == {host_id(): 4}
        assert MeasuredEstimator(database).estimate(asked) == costs, "found again by this host alone"


def test_a_plan_is_that_of_one_process_from_the_same_records(cluster: DaskCluster, tmp_path: Path) -> None:
    options: dict[str, Any] = {"threads": 1, "effort": EVERYTHING, "records": tmp_path / "r.db", "seed": 1}

    def tune(workers: str | None) -> tuple[Any, int]:
        plan = collage.partition(convolution_relu(), ["onnxruntime", "tvm"], workers=workers, **options)
        with RecordDatabase(options["records"]) as database:
            return plan, database.stats().by_kind["candidate"]

    by_fleet, measured = tune(cluster.address)
    assert measured > 0 and any("a fleet timed sub-graphs" in note for note in by_fleet.notes)
    alone, known = tune(None)
    again, _ = tune(cluster.address)
    assert known == measured, "nothing was measured again"
    assert alone.partitions == again.partitions == by_fleet.partitions
    assert alone.searched_cost == again.searched_cost == by_fleet.searched_cost


def test_nobody_at_the_address_is_one_line() -> None:
    with pytest.raises(CollageError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9"):
        Fleet("tcp://127.0.0.1:9", Reporter())


def test_a_worker_that_is_killed_while_it_times_loses_its_job_to_another(
    own: Callable[[int], DaskCluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, asked, killed = own(2), workloads(2), []
    ask = Cluster.ask

    def ask_and_kill(self: Cluster, member: Member, *rest: Any, times: bool = False) -> Pending[Any]:
        pending = ask(self, member, *rest, times=times)
        if times and not killed:
            killed.append(member.address)
            port = int(member.address.rsplit(":", 1)[1])
            cluster.kill(next(i for i, w in enumerate(cluster.workers) if port in listening(w.pid)))
        return pending

    monkeypatch.setattr(Cluster, "ask", ask_and_kill)
    with Fleet(cluster.address, Reporter()) as fleet, RecordDatabase(tmp_path / "r.db") as database:
        wait_for_members(fleet, 2)
        costs = MeasuredEstimator(database, workers=fleet).estimate(asked)
        assert all(cost.is_finite for cost in costs), costs
        assert len(cluster.workers) == 1
        observed = list(database.observations())
        assert len(observed) == len(asked)
        assert any(o.conditions.get("lost") == 1.0 for o in observed), [o.conditions for o in observed]
        assert any("a worker was lost" in note for note in fleet.notes())


def listening(process: int) -> set[int]:
    import psutil

    return {c.laddr.port for c in psutil.Process(process).net_connections("tcp") if c.status == psutil.CONN_LISTEN}


def test_workers_that_are_unlike_this_machine_are_not_asked(own: Callable[[int], DaskCluster], tmp_path: Path) -> None:
    (tmp_path / "unlike.py").write_text(UNLIKE)
    cluster, listener = own(0), Listener()
    cluster.add("--preload", str(tmp_path / "unlike.py"))
    with Fleet(cluster.address, listener, patience_s=1) as fleet, RecordDatabase(tmp_path / "r.db") as database:
        wait_for_members(fleet, 0, refused=1)
        (cost,) = MeasuredEstimator(database, workers=fleet).estimate(workloads(1)[:1])
        assert cost.is_finite
        assert any("it has python None" in note for note in fleet.notes()), fleet.notes()
        assert any("this host did the rest" in note for note in fleet.notes())
        assert any("is not asked any more" in line for line in listener.said)


def test_a_worker_whose_canary_drifts_is_put_in_quarantine(own: Callable[[int], DaskCluster], tmp_path: Path) -> None:
    (tmp_path / "drifting.py").write_text(DRIFTING)
    cluster = own(1)
    cluster.add("--preload", str(tmp_path / "drifting.py"))
    with Fleet(cluster.address, Reporter()) as fleet, RecordDatabase(tmp_path / "r.db") as database:
        wait_for_members(fleet, 2)
        costs = MeasuredEstimator(database, workers=fleet).estimate(workloads(8))
        assert all(cost.is_finite for cost in costs)
        assert any("was put in quarantine: its canary takes" in note for note in fleet.notes()), fleet.notes()


def wait_for_members(fleet: Fleet, count: int, refused: int = 0) -> None:
    """Until so many workers can be asked, and so many are known to be unlike this machine."""
    deadline, cluster = time.monotonic() + 300, fleet._cluster
    while (len(cluster.members(times=True)) < count or len(cluster.faults) < refused) and time.monotonic() < deadline:
        time.sleep(0.05)


# Faults, with questions that take a moment


def square(number: int) -> int:
    time.sleep(0.02)
    return number * number


class Squares(Crowd[int, int]):
    """Has numbers squared by a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def members(self) -> Mapping[str, Member]:
        return self.cluster.members(times=False)

    def ask(self, member: Member, question: int, done: Callable[[], None]) -> Pending[int]:
        return self.cluster.ask(member, square, (question,), done)

    def refuse(self, member: Member, answer: int, lost: int) -> bool:
        return False


@pytest.mark.long
def test_faults_of_all_kinds_lose_no_question(own: Callable[[int], DaskCluster]) -> None:
    """Workers that are killed, that stop and go on, and schedulers that are killed: every question is answered once."""
    broken, pick, stop = own(3), random.Random(0), threading.Event()
    done: list[str] = []

    def disturb() -> None:
        for fault in range(24):
            if stop.wait(pick.uniform(0.2, 1.0)):
                return
            kind = "scheduler" if fault % 12 == 11 else pick.choice(["kill", "stop"])
            if kind == "scheduler":
                broken.kill_scheduler()
            elif kind == "kill":
                broken.kill(0)
                broken.add()
            else:
                worker = broken.workers[pick.randrange(len(broken.workers))]
                worker.send_signal(signal.SIGSTOP)
                stop.wait(pick.uniform(0.5, 4.0))
                worker.send_signal(signal.SIGCONT)
            done.append(kind)

    cluster = Cluster(broken.address, Reporter(), silence_s=2.0)
    # A worker's first answer takes its imports, seconds in which a question could be lost with one after the other.
    assert {n: answer for n, answer, _ in dispatch(Squares(cluster), range(6), patience_s=120.0)}[5] == 25
    disturber = threading.Thread(target=disturb)
    disturber.start()
    answers: dict[int, int | None] = {}
    losses = 0

    def questions() -> Iterator[int]:
        number = 0
        while disturber.is_alive():
            yield number
            number += 1

    for number, answer, lost in dispatch(Squares(cluster), questions(), patience_s=120.0):
        assert number not in answers
        answers[number], losses = answer, losses + lost
    stop.set()
    disturber.join()
    cluster.close()
    assert len(done) == 24 and {"scheduler", "kill", "stop"} <= set(done)
    assert losses > 0
    assert {n: a for n, a in answers.items() if a != n * n} == {}
    assert sorted(answers) == list(range(len(answers)))


def test_where_the_scheduler_is_lost_this_host_does_the_rest(own: Callable[[int], DaskCluster], tmp_path: Path) -> None:
    cluster, asked, listener = own(1), workloads(2), Listener()
    with Fleet(cluster.address, listener, patience_s=1.0) as fleet, RecordDatabase(tmp_path / "r.db") as database:
        wait_for_members(fleet, 1)
        estimator = MeasuredEstimator(database, workers=fleet)
        assert all(cost.is_finite for cost in estimator.estimate(asked[:2]))
        cluster.kill_scheduler(again=False)
        assert all(cost.is_finite for cost in estimator.estimate(asked[2:]))
        assert "the fleet was lost: this host did the rest" in estimator.notes(asked)
    assert any("this host does the rest" in line for line in listener.said)
