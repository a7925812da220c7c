"""A fleet against one process: `python -m benchmarks.fleet_scaling [--jobs 24] [--rounds 3] [--out FILE]`.

The same candidates are built by one process of this host, and by clusters of one and of two workers, each with one
thread. They take turns, so that what else the machine does befalls all of them; the median round counts. Questions with
nothing to do show what a cluster costs where there is no work to share: this, and the way of libraries back, is the
overhead of a job. Timing is not compared: on one host one job at a time is timed, whoever does it.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.referee.origin import commit_of
from collage.backends.tvm.backend import TVMBackend
from collage.cost.estimator import Workload
from collage.measure.artifact import Preparation, prepare
from collage.measure.fleet import Fleet
from collage.measure.fleet.cluster import Cluster
from collage.measure.fleet.dispatch import Crowd, Member, Pending, dispatch
from collage.measure.workers import LocalWorkers, Workers
from collage.progress import Reporter

#: Workers of the clusters.
_SIZES = (1, 2)
#: With nothing to do.
_QUESTIONS = 500


@dataclass(frozen=True)
class Result:
    """Of one contestant.

    Attributes
    ----------
    build
        Seconds for each candidate.
    ratio
        How many times as many are built in a second as by one process.
    nothing
        Seconds for each question with nothing to do; 0 for one process.
    load
        Processes that want a processor, at the start and at the end of all (`os.getloadavg`).
    """

    name: str
    jobs: int
    build: float
    ratio: float
    nothing: float
    load: tuple[float, float]


class _Idle(Crowd[int, int]):
    """Workers with nothing to do."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def members(self) -> Mapping[str, Member]:
        return self._cluster.members(times=False)

    def ask(self, member: Member, question: int, done: Callable[[], None]) -> Pending[int]:
        return self._cluster.ask(member, abs, (question,), done)

    def refuse(self, member: Member, answer: int, refused: int) -> bool:
        return False


def candidates(count: int, folder: Path) -> list[Preparation]:
    """Sub-graphs that differ in their numbers of channels."""
    from tests.e2e.networks import convolution_relu

    backend = TVMBackend()
    return [prepare(Workload.of_module(convolution_relu(4 + i), backend), folder / f"{i}") for i in range(count)]


def measure(jobs: int, rounds: int) -> list[Result]:
    """Build so many candidates so often with each contestant."""
    from tests.dask_cluster import DaskCluster

    before = os.getloadavg()[0]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="collage-")))
        asked = candidates(jobs, folder)
        contestants: dict[str, Workers] = {"one process": stack.enter_context(LocalWorkers(1, builds=1))}
        nothing = {"one process": 0.0}
        for size in _SIZES:
            name = f"{size} worker" + "s" * (size > 1)
            (folder / name).mkdir()
            machines = stack.enter_context(closing(DaskCluster(folder / name, size, threads=1)))
            _wait(machines.address, size)
            contestants[name] = stack.enter_context(Fleet(machines.address, Reporter()))
            with closing(Cluster(machines.address, Reporter())) as cluster:
                _ask(cluster, size)
                nothing[name] = _seconds(partial(_ask, cluster, _QUESTIONS)) / _QUESTIONS
        for workers in contestants.values():
            workers.build(asked[:2])  # processes come up
        taken: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(rounds):
            for name, workers in contestants.items():
                taken[name].append(_seconds(partial(workers.build, asked)) / jobs)
        each = {name: median(seconds) for name, seconds in taken.items()}
        load = before, os.getloadavg()[0]
        return [Result(n, jobs, s, each["one process"] / s, nothing[n], load) for n, s in each.items()]


def _ask(cluster: Cluster, questions: int) -> None:
    """Have so many answered."""
    for _ in dispatch(_Idle(cluster), range(questions), 60.0):
        pass


def _wait(address: str, workers: int) -> None:
    """Until so many can be asked."""
    with closing(Cluster(address, Reporter())) as cluster:
        while len(cluster.members(times=False)) < workers:
            time.sleep(0.1)


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    commit = commit_of(Path(__file__).parents[1])
    lines = [json.dumps({"commit": commit, **asdict(r)}) for r in measure(options.jobs, options.rounds)]
    print(*lines, sep="\n")
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
