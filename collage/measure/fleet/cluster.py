"""Cluster: the workers of a Dask scheduler that are like this machine, and what was found wrong with others.

Dask gives the transport, with TLS where it is configured so, the life signs of workers, and their resources. Which
worker is asked what is decided here (`collage.measure.fleet.dispatch`). A scheduler that is lost is looked for again.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from collage.errors import CollageError
from collage.measure.fleet import remote
from collage.measure.fleet.dispatch import Member, Pending
from collage.measure.fleet.identity import Identity, difference, identity
from collage.progress import Reporter

Answer = TypeVar("Answer")

#: What a worker has to declare so that it is asked to time: `dask worker ... --resources timing=1`.
TIMING = "timing"
#: Seconds between two looks at the scheduler, and in which it has to answer.
_LOOK_S, _ANSWER_S = 0.5, 15.0
#: Faults one after the other after which a machine is not asked any more.
_FAULTS = 3


@dataclass(frozen=True)
class _Seen:
    """A worker as the scheduler tells of it: when it was heard last by its clock, and by ours."""

    host: str
    threads: int
    times: bool
    heard: float
    since: float


class Cluster:
    """Workers at a scheduler's address.

    Parameters
    ----------
    silence_s
        Seconds after which a worker that is not heard counts as lost.

    Attributes
    ----------
    faults
        Why workers are not asked: address -> reason.

    Raises
    ------
    CollageError
        Nobody answers at the address, or Dask is not installed.
    """

    def __init__(self, address: str, reporter: Reporter, silence_s: float = 30.0) -> None:
        self.address = address
        self.reporter = reporter
        self.silence_s = silence_s
        self.faults: dict[str, str] = {}
        self._ours = identity()
        self._asked: dict[str, Any] = {}  # for their identity
        self._known: set[str] = set()
        self._hosts: dict[str, str] = {}
        self._failed: dict[str, int] = {}
        self._seen: dict[str, _Seen] = {}
        self._looked = 0.0
        self._told: Mapping[str, Any] = {}
        self._answered = 0.0
        self._client: Any = None
        try:
            self._connect()
        except ModuleNotFoundError as error:
            raise CollageError(f"workers need the package {error.name}: pip install 'collage-tvm[scale]'") from error
        except (OSError, ValueError) as error:
            raise CollageError(f"no Dask scheduler answers at {address}: {error or type(error).__name__}") from error

    def members(self, times: bool) -> dict[str, Member]:
        """Who can be asked to time, or to build, by address; of each host one worker times."""
        self._look()
        found = {}
        for address, seen in self._seen.items():
            like_us = address in self._known and address not in self.faults
            if like_us and self._is_heard(seen) and (seen.times or not times):
                found[address] = Member(address, seen.host if times else address, 1 if times else seen.threads)
        return found

    def expects(self, times: bool) -> bool:
        """Whether a newcomer has not said yet what it is."""
        found = (self._seen[address] for address in self._asked if address in self._seen)
        return any(self._is_heard(seen) and (seen.times or not times) for seen in found)

    def ask(
        self,
        member: Member,
        function: Callable[..., Answer],
        arguments: tuple[Any, ...],
        done: Callable[[], None],
        times: bool = False,
    ) -> Pending[Answer]:
        """Have a function called by a worker; one that times is called alone."""
        import dask

        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
            future = self._client.submit(
                function,
                *arguments,
                key=f"collage-{TIMING if times else 'building'}-{uuid.uuid4().hex}",
                workers=[member.address],
                allow_other_workers=False,
                resources={TIMING: 1} if times else None,
                pure=False,
            )
        future.add_done_callback(lambda _: done())
        return _Future(future, self, member)

    def set_aside(self, address: str, reason: str) -> None:
        """Ask this worker no more."""
        if address not in self.faults:
            self.faults[address] = reason
            self.reporter.note(f"the worker {address} is not asked any more: {reason}")

    def notice(self, address: str, fault: str) -> bool:
        """Note that something on the machine of a worker was to blame for a failure, or, with "", that nothing was; one
        that fails again and again is set aside. Whether there was a fault.
        """
        self._failed[address] = self._failed.get(address, 0) + 1 if fault else 0
        if self._failed[address] >= _FAULTS:
            self.set_aside(address, fault)
        return bool(fault)

    def host_of(self, address: str) -> str:
        """The host of a worker that is or was a member."""
        return self._hosts.get(address, address)

    def release(self) -> None:
        """Have the members end their timing processes."""
        from distributed import wait

        with suppress(Exception):  # they end with the worker, at the latest
            members = self.members(times=True)
            wait([self._client.submit(remote.release, workers=[a], pure=False) for a in members], timeout=_ANSWER_S)

    def close(self) -> None:
        """Leave the cluster; workers stay."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):  # the scheduler may be gone
                client.close(timeout=_ANSWER_S)

    def _is_heard(self, seen: _Seen) -> bool:
        return time.monotonic() - seen.since < self.silence_s

    def _connect(self) -> None:
        from distributed import Client

        self._client = Client(self.address, timeout=_ANSWER_S, set_as_default=False, name="collage")

    def _look(self) -> None:
        """Ask the scheduler who is there, and newcomers who they are."""
        if time.monotonic() - self._looked < _LOOK_S:
            return
        workers = self._workers()
        self._looked = now = time.monotonic()
        before, self._seen = self._seen, {}
        for address, told in workers.items():
            heard = float(told.get("last_seen", 0.0))
            same = before.get(address)
            since = same.since if same is not None and same.heard == heard else now
            times = told.get("resources", {}).get(TIMING, 0) > 0
            self._seen[address] = _Seen(str(told["host"]), int(told["nthreads"]), times, heard, since)
            if address not in self._known and address not in self._asked and address not in self.faults:
                self._asked[address] = self._client.submit(
                    identity, workers=[address], key=f"collage-identity-{uuid.uuid4().hex}", pure=False
                )
        for address, future in list(self._asked.items()):
            if address not in workers:
                del self._asked[address]
            elif future.done():
                del self._asked[address]
                self._judge(address, future)

    def _judge(self, address: str, future: Any) -> None:
        if future.status != "finished":
            if future.status == "error":
                self.notice(address, _said(future))  # else it is asked again
            return
        theirs: Identity = future.result(timeout=_ANSWER_S)
        unlike = difference(self._ours, theirs)
        if unlike:
            self.set_aside(address, unlike)
        else:
            self._known.add(address)
            self._hosts[address] = theirs.host

    def _workers(self) -> Mapping[str, Any]:
        """As the scheduler tells of them; none while it is lost."""
        try:
            if self._client is None:
                self._connect()
            told = self._client.sync(self._client.scheduler.identity, n_workers=-1, callback_timeout=_ANSWER_S)
        except Exception as error:  # of Dask, of its transport, of the system: whatever it is, nobody answers
            if (
                isinstance(error, TimeoutError | asyncio.TimeoutError)
                and time.monotonic() - self._answered < self.silence_s
            ):
                return self._told
            self._known.clear()  # who comes back is another process
            self._asked.clear()
            self.close()
            return {}
        self._told, self._answered = told["workers"], time.monotonic()
        return self._told


class _Future(Pending[Answer], Generic[Answer]):
    """A future of Dask."""

    def __init__(self, future: Any, cluster: Cluster, member: Member) -> None:
        self._future, self._cluster, self._member = future, cluster, member

    def result(self) -> Answer | None:
        try:
            if self._future.status == "finished":
                answer: Answer = self._future.result(timeout=_ANSWER_S)
                return answer
            if self._future.status == "error" and not _is_lost(self._future):
                self._cluster.set_aside(self._member.address, _said(self._future))
        except Exception:  # lost after all, on the way from there; Dask raises whatever the worker's end was
            logging.getLogger(__name__).debug("no answer from %s", self._member.address, exc_info=True)
        return None

    def cancel(self) -> None:
        with suppress(Exception):  # the scheduler may be gone
            self._future.cancel()


def _is_lost(future: Any) -> bool:
    """Whether it failed because its worker did, as far as Dask can tell."""
    from distributed.client import FutureCancelledError
    from distributed.comm import CommClosedError
    from distributed.scheduler import KilledWorker

    return isinstance(future.exception(timeout=_ANSWER_S), KilledWorker | CommClosedError | FutureCancelledError)


def _said(future: Any) -> str:
    error = future.exception(timeout=_ANSWER_S)
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
