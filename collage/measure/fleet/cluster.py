"""Cluster: the workers of a Dask scheduler that are like this machine, and the reasons why others are left out.

Dask gives the transport, with TLS where it is configured, the life signs of workers, and their resources. Which worker
gets which job is decided here (`collage.measure.fleet.dispatch`). If the scheduler is lost, it is looked for again.
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
from collage.measure.fleet.dispatch import Lost, Member, Pending
from collage.measure.fleet.identity import Identity, difference, identity
from collage.progress import Reporter

Answer = TypeVar("Answer")

#: What a worker has to declare so that it is asked to time: `dask worker ... --resources timing=1`.
TIMING = "timing"
#: Seconds between two looks at the scheduler, and in which it has to answer.
_LOOK_S, _ANSWER_S = 0.5, 15.0
#: Seconds in which a newcomer is expected to say what it is: it imports libraries, maybe all on one host at once, and
#: may not be heard until it has.
_COMING_S = 300.0
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
    client
        Dask's; None while the scheduler is lost.

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
        self.client: Any = None
        self._ours = identity()
        self._scheduler = ""  # another one after a restart
        self._asked: dict[str, tuple[Any, float]] = {}  # for their identity, and when
        self._known: set[str] = set()
        self._hosts: dict[str, str] = {}
        self._failed: dict[str, int] = {}
        self._seen: dict[str, _Seen] = {}
        self._looked = 0.0
        self._told: Mapping[str, Any] = {}
        self._answered = self._connected = 0.0
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
            if like_us and time.monotonic() - seen.since < self.silence_s and (seen.times or not times):
                found[address] = Member(address, seen.host if times else address, 1 if times else seen.threads)
        return found

    def expects(self, times: bool) -> bool:
        """Whether a newcomer has not said yet what it is."""
        return any(
            time.monotonic() - since < _COMING_S and (self._seen[address].times or not times)
            for address, (_, since) in self._asked.items()
            if address in self._seen
        )

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

        try:
            with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
                future = self.client.submit(
                    function,
                    *arguments,
                    key=f"collage-{TIMING if times else 'building'}-{uuid.uuid4().hex}",
                    workers=[member.address],
                    allow_other_workers=False,
                    resources={TIMING: 1} if times else None,
                    pure=False,
                )
        except Exception:  # of Dask, whose client has just given up
            logging.getLogger(__name__).debug("%s cannot be asked", member.address, exc_info=True)
            done()
            return _Unasked()
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
            wait([self.client.submit(remote.release, workers=[a], pure=False) for a in members], timeout=_ANSWER_S)

    def close(self) -> None:
        """Leave the cluster; workers stay."""
        client, self.client = self.client, None
        if client is not None:
            with suppress(Exception):  # the scheduler may be gone
                client.close(timeout=_ANSWER_S)

    def _connect(self) -> None:
        from distributed import Client

        self.client = Client(self.address, timeout=_ANSWER_S, set_as_default=False, name="collage")
        self._connected = time.monotonic()

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
                self._ask_who(address)
        for address, (future, _) in list(self._asked.items()):
            if address not in workers:
                del self._asked[address]
            elif future.done():
                del self._asked[address]
                self._judge(address, future)

    def _ask_who(self, address: str) -> None:
        with suppress(Exception):  # of Dask, whose client has just given up; then it is asked later
            key = f"collage-identity-{uuid.uuid4().hex}"
            self._asked[address] = (
                self.client.submit(identity, workers=[address], key=key, pure=False),
                time.monotonic(),
            )

    def _judge(self, address: str, future: Any) -> None:
        """Whether a newcomer is like us; one that was lost before it has said so is asked again."""
        try:
            if future.status == "error" and not _is_lost(future):
                self.notice(address, _said(future))
            if future.status != "finished":
                return
            theirs: Identity = future.result(timeout=self._answer_s)
        except Exception:  # as in `_Future.result`
            logging.getLogger(__name__).debug("no identity from %s", address, exc_info=True)
            return
        unlike = difference(self._ours, theirs)
        if unlike:
            self.set_aside(address, unlike)
        else:
            self._known.add(address)
            self._hosts[address] = theirs.host

    def _workers(self) -> Mapping[str, Any]:
        """As the scheduler tells of them; none while it is lost, or does not answer for long."""
        try:
            if self.client is None:
                self._connect()
            told = self.client.sync(self.client.scheduler.identity, n_workers=-1, callback_timeout=_ANSWER_S)
        except Exception as error:  # of Dask, of its transport, of the system: whatever it is, nobody answers
            is_slow = isinstance(error, TimeoutError | asyncio.TimeoutError)
            if is_slow and time.monotonic() - self._answered < self.silence_s:
                return self._told
            if not (is_slow and self._is_connected()):
                self._forget()
                self.close()
            return {}
        if not self._is_connected():  # Dask's client has one connection to ask this, and another one for futures
            self._forget()
            self.close()
            return {}
        if told["id"] != self._scheduler:
            self._forget()
            self._scheduler = told["id"]
        self._told, self._answered = told["workers"], time.monotonic()
        return self._told

    def _is_connected(self) -> bool:
        """Whether futures can come; Dask's client is given a while to connect again by itself."""
        now = time.monotonic()
        if self.client is not None and self.client.status == "running":
            self._connected = now
        return now - self._connected < _ANSWER_S

    def _forget(self) -> None:
        """Who comes back is another process."""
        self._known.clear()
        self._asked.clear()

    @property
    def _answer_s(self) -> float:
        """Seconds in which a result that is there has to arrive."""
        return min(_ANSWER_S, self.silence_s)


class _Future(Pending[Answer], Generic[Answer]):
    """A future of Dask."""

    def __init__(self, future: Any, cluster: Cluster, member: Member) -> None:
        self._future, self._cluster, self._member = future, cluster, member

    def result(self) -> Answer | Lost:
        try:
            if self._future.status == "finished":
                answer: Answer = self._future.result(timeout=self._cluster._answer_s)
                return answer
            if self._future.status == "cancelled":
                return Lost.WAY
            if self._future.status == "error" and not _is_lost(self._future):
                self._cluster.notice(self._member.address, _said(self._future))
        except Exception:  # lost after all, on the way from there; Dask raises whatever the worker's end was
            logging.getLogger(__name__).debug("no answer from %s", self._member.address, exc_info=True)
            if self._future.status == "cancelled":
                return Lost.WAY
        return Lost.WORKER

    def cancel(self) -> None:
        with suppress(Exception):  # the scheduler may be gone
            self._future.cancel()


class _Unasked(Pending[Any]):
    """What could not be asked."""

    def result(self) -> Lost:
        return Lost.WAY

    def cancel(self) -> None:
        pass


def _is_lost(future: Any) -> bool:
    """Whether it failed because its worker did, as far as Dask can tell."""
    from distributed.client import FutureCancelledError
    from distributed.comm import CommClosedError
    from distributed.scheduler import KilledWorker

    return isinstance(future.exception(timeout=_ANSWER_S), KilledWorker | CommClosedError | FutureCancelledError)


def _said(future: Any) -> str:
    error = future.exception(timeout=_ANSWER_S)
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
