"""A cluster of three workers builds and times, and what happens to them costs time only."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import count, takewhile
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
from tests.cut_wire import Wire
from tests.dask_cluster import DaskCluster
from tests.e2e.efforts import EVERYTHING
from tests.e2e.networks import convolution_relu
from tests.squares import slowly_squared

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
def own(tmp_path: Path) -> Iterator[Callable[..., DaskCluster]]:
    """Makes clusters that a test may break."""
    made: list[DaskCluster] = []

    def make(workers: int, supervised: bool = False) -> DaskCluster:
        made.append(DaskCluster(tmp_path, workers, supervised))
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
    own: Callable[..., DaskCluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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


def test_workers_that_are_unlike_this_machine_are_not_asked(own: Callable[..., DaskCluster], tmp_path: Path) -> None:
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


def test_a_worker_whose_canary_drifts_is_put_in_quarantine(own: Callable[..., DaskCluster], tmp_path: Path) -> None:
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


class Squares(Crowd[int, int]):
    """Has numbers squared by a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def members(self) -> Mapping[str, Member]:
        return self.cluster.members(times=False)

    def expects(self) -> bool:
        return self.cluster.expects(times=False)

    def ask(self, member: Member, question: int, done: Callable[[], None]) -> Pending[int]:
        return self.cluster.ask(member, slowly_squared, (question,), done)

    def refuse(self, member: Member, answer: int, refused: int) -> bool:
        return False


@pytest.mark.long
@pytest.mark.timeout(1800)  # on a machine where others work, every start of a worker takes a minute
def test_faults_of_all_kinds_lose_no_question(own: Callable[..., DaskCluster]) -> None:
    """Workers that are killed, that hang, schedulers that are killed, connections that are cut: every question is
    answered, once. The next fault comes after some more answers, however long these take.
    """
    broken, pick = own(3, supervised=True), random.Random(0)
    wire = Wire(broken.port)
    planned = {"cut": 60, "hang": 12, "kill": 7, "scheduler": 1}
    faults = list(Counter(planned).elements())
    pick.shuffle(faults)
    happened: Counter[str] = Counter()

    def disturb() -> None:
        kind = faults.pop()
        happened[kind] += 1
        if kind == "cut":
            wire.cut()
        elif kind == "hang":
            broken.stop(pick.randrange(3), pick.uniform(1.0, 4.0))
        elif kind == "kill":
            broken.kill(pick.randrange(3))
        else:
            broken.kill_scheduler()

    cluster = Cluster(wire.address, Reporter(), silence_s=2.0)
    answers: dict[int, int | None] = {}
    losses, next_fault = 0, 1
    questions = takewhile(lambda _: faults, count())
    for number, answer, lost in dispatch(Squares(cluster), questions, patience_s=500.0):
        assert number not in answers
        answers[number], losses = answer, losses + lost
        if faults and len(answers) >= next_fault:
            disturb()
            next_fault = len(answers) + pick.randrange(1, 30)
    cluster.close()
    wire.close()
    assert happened == planned
    assert losses > 0
    assert {n: a for n, a in answers.items() if a != n * n} == {}
    assert sorted(answers) == list(range(len(answers)))


def test_where_the_scheduler_is_lost_this_host_does_the_rest(own: Callable[..., DaskCluster], tmp_path: Path) -> None:
    cluster, asked, listener = own(1), workloads(2), Listener()
    with Fleet(cluster.address, listener, patience_s=1.0) as fleet, RecordDatabase(tmp_path / "r.db") as database:
        wait_for_members(fleet, 1)
        estimator = MeasuredEstimator(database, workers=fleet)
        assert all(cost.is_finite for cost in estimator.estimate(asked[:2]))
        cluster.kill_scheduler()
        assert all(cost.is_finite for cost in estimator.estimate(asked[2:]))
        assert "the fleet was lost: this host did the rest" in estimator.notes(asked)
    assert any("this host does the rest" in line for line in listener.said)
