"""Dispatch: which worker gets which job, and what happens to a job whose worker is lost.

Each job is lent to one worker at a time: a lease. The lease ends with the answer, or with the worker: a worker that has
died, is not heard any more or is refused loses its leases, and the jobs go to others. An answer that comes after its
lease has ended is ignored, so no job is answered twice.

A job that ends its workers is not sent for ever; it is then Unknown, because nothing was learned about the candidate.
Workers also die for reasons of their own. So a loss counts against a job only if the worker had no other job, and no
other worker was gone meanwhile. A job that was lost twice gets a worker for itself.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")

#: Seconds between two looks at who is there.
_LOOK_S = 0.5
#: So many losses that are held against a question end it.
LOST = 8
#: A question that was lost so often is asked alone.
_SUSPECT = 2


@dataclass(frozen=True)
class Member:
    """A worker that can be asked.

    Attributes
    ----------
    address
        Of the worker; another one after a restart.
    place
        What is shared by those of which one at a time may be asked; the address where that is nothing.
    slots
        How many questions it answers at a time.
    """

    address: str
    place: str
    slots: int = 1


class Lost(Enum):
    """Why no answer will come."""

    WORKER = "its worker failed"
    WAY = "the connection to all workers was cut"


class Crowd(ABC, Generic[Question, Answer]):
    """Those who are asked."""

    @abstractmethod
    def members(self) -> Mapping[str, Member]:
        """By address, those who can be asked now."""

    def expects(self) -> bool:
        """Whether somebody may come soon."""
        return False

    @abstractmethod
    def ask(self, member: Member, question: Question, done: Callable[[], None]) -> Pending[Answer]:
        """Ask one. `done` is called, from any thread, once there is an answer or none will come."""

    @abstractmethod
    def refuse(self, member: Member, answer: Answer, refused: int) -> bool:
        """Whether the answer says more about who gave it than about the question, which then goes to another one.

        Parameters
        ----------
        refused
            How many answers of others were.
        """


class Pending(ABC, Generic[Answer]):
    """A question that was asked."""

    @abstractmethod
    def result(self) -> Answer | Lost:
        """The answer, or why none will come."""

    @abstractmethod
    def cancel(self) -> None:
        """Nobody waits for the answer any more."""


@dataclass
class _Asked(Generic[Question]):
    """A question, and what became of it.

    Attributes
    ----------
    lost
        With how many workers it was lost or refused.
    blamed
        How many of these losses are held against it.
    refused
        How many answers were refused.
    losers
        The workers.
    """

    number: int
    question: Question
    lost: int = 0
    blamed: int = 0
    refused: int = 0
    losers: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _Lease(Generic[Question, Answer]):
    """Of a question by a member; and how many workers were gone when it began."""

    member: Member
    asked: _Asked[Question]
    pending: Pending[Answer]
    gone: int


class Abandoned(Exception, Generic[Question]):
    """Nobody can be asked, and nobody comes.

    Attributes
    ----------
    rest
        The questions without an answer, by their numbers.
    """

    def __init__(self, rest: Iterator[tuple[int, Question]]) -> None:
        super().__init__("no worker")
        self.rest = rest


def dispatch(
    crowd: Crowd[Question, Answer], questions: Iterable[Question], patience_s: float
) -> Iterator[tuple[int, Answer | None, int]]:
    """The number of each question, its answer, and with how many workers it was lost, in the order of the answers. The
    answer is None where it ended its workers too often.

    Parameters
    ----------
    questions
        Are taken when there is somebody to ask.
    patience_s
        Seconds in which there may be nobody.

    Raises
    ------
    Abandoned
        There was nobody for longer.
    """
    more = iter(enumerate(questions))
    again: deque[_Asked[Question]] = deque()
    leases: dict[int, _Lease[Question, Answer]] = {}
    finished: SimpleQueue[int] = SimpleQueue()
    tickets = count()  # one for each lease
    asked_last: dict[str, int] = {}
    present: Mapping[str, Member] = {}
    gone: list[str] = []  # workers that ended for reasons of their own, as far as can be told
    exhausted, heard = False, time.monotonic()

    def lose(ticket: int, blamed: bool) -> None:
        lease = leases.pop(ticket)
        lease.pending.cancel()
        lease.asked.lost += 1
        lease.asked.blamed += blamed
        lease.asked.losers.add(lease.member.address)
        again.append(lease.asked)

    def is_its_doing(lease: _Lease[Question, Answer], held: Mapping[str, int]) -> bool:
        """Whether the loss of its worker is held against the question."""
        address = lease.member.address
        return held[address] == 1 and all(other == address for other in gone[lease.gone :])

    try:
        while True:
            before, members = present, crowd.members()
            present = members
            held = Counter(lease.member.address for lease in leases.values())
            # What was lost before may have ended its worker again: that would excuse no other one.
            suspects = {lease.member.address for lease in leases.values() if lease.asked.lost}
            gone += [address for address in before if address not in members and address not in suspects]
            ended = [t for t, lease in leases.items() if lease.member.address not in members]
            for ticket, is_blamed in [(t, is_its_doing(leases[t], held)) for t in ended]:
                lose(ticket, is_blamed)
            for given_up in [asked for asked in again if asked.blamed >= LOST]:
                again.remove(given_up)
                yield given_up.number, None, given_up.lost
            waiting_longest = sorted(members.values(), key=lambda member: asked_last.get(member.address, -1))
            beside: dict[str, list[_Asked[Question]]] = defaultdict(list)  # by place, what is asked there
            for lease in leases.values():
                beside[lease.member.place].append(lease.asked)
            for member in _free(waiting_longest, [lease.member for lease in leases.values()]):
                asked = _next(again, member, members, beside[member.place])
                if asked is None and not exhausted and not any(map(_is_suspect, beside[member.place])):
                    following = next(more, None)
                    exhausted = following is None
                    asked = None if following is None else _Asked(*following)
                if asked is not None:
                    ticket = asked_last[member.address] = next(tickets)
                    beside[member.place].append(asked)
                    pending = crowd.ask(member, asked.question, partial(finished.put, ticket))
                    leases[ticket] = _Lease(member, asked, pending, len(gone))
            if members or crowd.expects():
                heard = time.monotonic()
            if not leases and not again and exhausted:
                return
            if not leases and not members and time.monotonic() - heard > patience_s:
                waiting = sorted(again, key=lambda asked: asked.number)
                again.clear()
                raise Abandoned(_rest([(a.number, a.question) for a in waiting], more))
            try:
                ticket = finished.get(timeout=_LOOK_S)
            except Empty:
                continue
            if ticket not in leases:
                continue  # the lease has ended
            lease = leases[ticket]
            answer = lease.pending.result()
            if isinstance(answer, Lost):
                held = Counter(other.member.address for other in leases.values())
                lose(ticket, answer is Lost.WORKER and is_its_doing(lease, held))
            elif crowd.refuse(lease.member, answer, lease.asked.refused):
                lease.asked.refused += 1
                lose(ticket, False)
            else:
                del leases[ticket]
                yield lease.asked.number, answer, lease.asked.lost
    finally:  # who asks is interrupted
        for lease in leases.values():
            lease.pending.cancel()


def _free(members: Sequence[Member], busy: Iterable[Member]) -> Iterator[Member]:
    """A member for each question that can be asked now, in turns."""
    taken: dict[str, int] = {}
    for member in busy:
        taken[member.place] = taken.get(member.place, 0) + 1
    found = True
    while found:
        found = False
        for member in members:
            if taken.get(member.place, 0) < member.slots:
                taken[member.place] = taken.get(member.place, 0) + 1
                found = True
                yield member


def _is_suspect(asked: _Asked[Question]) -> bool:
    return asked.lost >= _SUSPECT


def _next(
    again: deque[_Asked[Question]], member: Member, members: Mapping[str, Member], beside: Sequence[_Asked[Question]]
) -> _Asked[Question] | None:
    """One that was lost, but not with this member, unless it was with all; and that may be asked beside others."""
    if any(map(_is_suspect, beside)):
        return None
    for asked in again:
        elsewhere = member.address not in asked.losers or asked.losers.issuperset(members)
        if elsewhere and not (beside and _is_suspect(asked)):
            again.remove(asked)
            return asked
    return None


def _rest(first: list[tuple[int, Question]], more: Iterator[tuple[int, Question]]) -> Iterator[tuple[int, Question]]:
    yield from first
    yield from more
