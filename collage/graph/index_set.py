"""IndexSet: an immutable set of dataflow-node indices (RFC 0062), backed by one Python integer used as a bit vector."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_WORD = 512
_WORD_MASK = (1 << _WORD) - 1


class IndexSet:
    """A set of node indices. `|`, `&`, `-`, comparison, iteration in ascending order; prints as `{1,3..5}`."""

    __slots__ = ("bits",)
    bits: int

    def __init__(self, indices: Iterable[int] = ()) -> None:
        bits = 0
        for index in indices:
            bits |= 1 << index
        self.bits = bits

    @classmethod
    def from_bits(cls, bits: int) -> IndexSet:
        """The set whose members are the positions of the one bits of `bits`."""
        result = cls.__new__(cls)
        result.bits = bits
        return result

    def __or__(self, other: IndexSet) -> IndexSet:
        return IndexSet.from_bits(self.bits | other.bits)

    def __and__(self, other: IndexSet) -> IndexSet:
        return IndexSet.from_bits(self.bits & other.bits)

    def __sub__(self, other: IndexSet) -> IndexSet:
        return IndexSet.from_bits(self.bits & ~other.bits)

    def __contains__(self, index: int) -> bool:
        return bool(self.bits >> index & 1)

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __bool__(self) -> bool:
        return self.bits != 0

    def __iter__(self) -> Iterator[int]:
        if not self.bits:
            return
        # Members lie in a window; cut into words, a set of n members far up costs O(n), not O(n * last).
        base = self.first
        window = self.bits >> base
        while window:
            word = window & _WORD_MASK
            while word:
                low = word & -word
                yield base + low.bit_length() - 1
                word ^= low
            window >>= _WORD
            base += _WORD

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IndexSet) and self.bits == other.bits

    def __hash__(self) -> int:
        # Python hashes integers modulo 2**61 - 1, so sets that are shifts of each other by 61 would all collide.
        return hash((self.bits, self.bits.bit_length()))

    def __le__(self, other: IndexSet) -> bool:
        return self.bits & ~other.bits == 0

    def isdisjoint(self, other: IndexSet) -> bool:
        return self.bits & other.bits == 0

    @property
    def first(self) -> int:
        """The smallest member; ValueError when empty."""
        if not self.bits:
            raise ValueError("an empty IndexSet has no first member")
        return (self.bits & -self.bits).bit_length() - 1

    @property
    def last(self) -> int:
        """The largest member; ValueError when empty."""
        if not self.bits:
            raise ValueError("an empty IndexSet has no last member")
        return self.bits.bit_length() - 1

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
