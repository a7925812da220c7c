"""IndexSet: an immutable set of dataflow-node indices (RFC 0062), backed by one Python integer used as a bit vector.

The integer is shifted down by the smallest member. The sub-graphs of a long network are small and lie anywhere in it;
so each takes memory and time by its own extent, not by its distance from the first node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_WORD = 512
_WORD_MASK = (1 << _WORD) - 1


class IndexSet:
    """A set of node indices. `|`, `&`, `-`, comparison, iteration in ascending order; prints as `{1,3..5}`."""

    __slots__ = ("_first", "_window")
    _first: int
    _window: int

    def __init__(self, indices: Iterable[int] = ()) -> None:
        members = indices if isinstance(indices, (tuple, list, set, frozenset)) else list(indices)
        self._first = min(members, default=0)
        window = 0
        for index in members:
            window |= 1 << (index - self._first)
        self._window = window

    @classmethod
    def from_bits(cls, bits: int) -> IndexSet:
        """The set whose members are the positions of the one bits of `bits`."""
        return cls._shifted(bits, 0)

    @classmethod
    def _shifted(cls, window: int, shift: int) -> IndexSet:
        """The members of `window`, moved up by `shift`. Equal sets have equal fields: a window is odd, or nothing."""
        result = cls.__new__(cls)
        if not window:
            result._first, result._window = 0, 0
        elif window & 1:
            result._first, result._window = shift, window
        else:
            zeros = (window & -window).bit_length() - 1
            result._first, result._window = shift + zeros, window >> zeros
        return result

    @property
    def bits(self) -> int:
        """The set as one integer: bit i is member i."""
        return self._window << self._first

    @property
    def sort_key(self) -> tuple[int, int]:
        """Orders sets by their first member, then in some way; of equal sets only the same. Found at no expense."""
        return self._first, self._window

    def __or__(self, other: IndexSet) -> IndexSet:
        low, high = (self, other) if self._first <= other._first else (other, self)
        if not low._window:
            return high
        return IndexSet._shifted(low._window | high._window << (high._first - low._first), low._first)

    def __and__(self, other: IndexSet) -> IndexSet:
        low, high = (self, other) if self._first <= other._first else (other, self)
        return IndexSet._shifted(low._window >> (high._first - low._first) & high._window, high._first)

    def __sub__(self, other: IndexSet) -> IndexSet:
        return IndexSet._shifted(self._window & ~other._seen_from(self._first), self._first)

    def _seen_from(self, first: int) -> int:
        """The members from `first` upwards, shifted down by `first`."""
        shift = self._first - first
        return self._window << shift if shift >= 0 else self._window >> -shift

    def __contains__(self, index: int) -> bool:
        return index >= self._first and bool(self._window >> (index - self._first) & 1)

    def __len__(self) -> int:
        return self._window.bit_count()

    def __bool__(self) -> bool:
        return self._window != 0

    def __iter__(self) -> Iterator[int]:
        base, window = self._first, self._window
        while window:
            word = window & _WORD_MASK
            while word:
                low = word & -word
                yield base + low.bit_length() - 1
                word ^= low
            window >>= _WORD
            base += _WORD

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IndexSet) and self._first == other._first and self._window == other._window

    def __hash__(self) -> int:
        # Python hashes integers modulo 2**61 - 1: of whole bit vectors, those that are shifts by 61 would all collide.
        return hash((self._first, self._window))

    def __le__(self, other: IndexSet) -> bool:
        return not self - other

    def isdisjoint(self, other: IndexSet) -> bool:
        low, high = (self, other) if self._first <= other._first else (other, self)
        return not low._window >> (high._first - low._first) & high._window

    @property
    def first(self) -> int:
        """The smallest member; ValueError when empty."""
        if not self._window:
            raise ValueError("an empty IndexSet has no first member")
        return self._first

    @property
    def last(self) -> int:
        """The largest member; ValueError when empty."""
        if not self._window:
            raise ValueError("an empty IndexSet has no last member")
        return self._first + self._window.bit_length() - 1

    def __repr__(self) -> str:
        runs: list[str] = []
        start = previous = -1
        for index in [*self, -1]:
            if start >= 0 and index != previous + 1:
                separator = "," if previous == start + 1 else ".."
                runs.append(f"{start}" if start == previous else f"{start}{separator}{previous}")
                start = -1
            if start < 0:
                start = index
            previous = index
        return "{" + ",".join(runs) + "}"
