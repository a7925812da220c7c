"""Dispatch: who is asked what, and what becomes of it where a worker is lost.

Each question is lent to one worker at a time: a lease. It ends with the answer, or with the worker: one that has died,
is not heard any more or is refused loses its leases, and the questions go to others. An answer that comes after its
lease has ended counts for nothing, so nothing is answered twice. A question that was lost with many workers is not
asked any more: it says nothing about what was asked, only that it could not be.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")

#: Seconds between two looks at who is there.
_LOOK_S = 0.5
#: With so many workers a question may be lost.
LOST = 8


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
    def refuse(self, member: Member, answer: Answer, lost: int) -> bool:
        """Whether the answer says more about who gave it than about the question, which then goes to another one.

        Parameters
        ----------
        lost
            With how many others it was lost, or refused.
        """


class Pending(ABC, Generic[Answer]):
    """A question that was asked."""

    @abstractmethod
    def result(self) -> Answer | None:
        """The answer; None where none will come."""

    @abstractmethod
    def cancel(self) -> None:
        """Nobody waits for the answer any more."""


@dataclass
class _Asked(Generic[Question]):
    """A question; with how many workers it was lost, and who these are."""

    number: int
    question: Question
    lost: int = 0
    losers: set[str] = field(default_factory=set)


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
    answer is None where it was lost too often.

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
    leases: dict[int, tuple[Member, _Asked[Question], Pending[Answer]]] = {}
    finished: SimpleQueue[int] = SimpleQueue()
    tickets = count()  # one for each lease
    asked_last: dict[str, int] = {}
    exhausted, heard = False, time.monotonic()

    def lose(ticket: int) -> None:
        member, asked, pending = leases.pop(ticket)
        pending.cancel()
        asked.lost += 1
        asked.losers.add(member.address)
        again.append(asked)

    try:
        while True:
            members = crowd.members()
            for ticket in [t for t, (member, _, _) in leases.items() if member.address not in members]:
                lose(ticket)
            for given_up in [asked for asked in again if asked.lost >= LOST]:
                again.remove(given_up)
                yield given_up.number, None, given_up.lost
            waiting_longest = sorted(members.values(), key=lambda member: asked_last.get(member.address, -1))
            for member in _free(waiting_longest, [member for member, _, _ in leases.values()]):
                asked = _next(again, member, members)
                if asked is None and not exhausted:
                    following = next(more, None)
                    exhausted = following is None
                    asked = None if following is None else _Asked(*following)
                if asked is not None:
                    ticket = asked_last[member.address] = next(tickets)
                    leases[ticket] = member, asked, crowd.ask(member, asked.question, partial(finished.put, ticket))
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
            member, asked, pending = leases[ticket]
            answer = pending.result()
            if answer is None or crowd.refuse(member, answer, asked.lost):
                lose(ticket)
            else:
                del leases[ticket]
                yield asked.number, answer, asked.lost
    finally:  # who asks is interrupted
        for _, _, pending in leases.values():
            pending.cancel()


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


def _next(again: deque[_Asked[Question]], member: Member, members: Mapping[str, Member]) -> _Asked[Question] | None:
    """One that was lost, but not with this member, unless it was with all."""
    for asked in again:
        if member.address not in asked.losers or asked.losers.issuperset(members):
            again.remove(asked)
            return asked
    return None


def _rest(first: list[tuple[int, Question]], more: Iterator[tuple[int, Question]]) -> Iterator[tuple[int, Question]]:
    yield from first
    yield from more
