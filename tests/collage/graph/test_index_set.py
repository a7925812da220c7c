"""An IndexSet behaves as a set of integers, wherever its members lie."""

from hypothesis import given
from hypothesis import strategies as st

from collage.graph import IndexSet

members = st.frozensets(st.one_of(st.integers(0, 20), st.integers(60, 70), st.integers(1000, 2100)), max_size=8)


@given(members, members)
def test_it_behaves_as_a_set(a: frozenset[int], b: frozenset[int]) -> None:
    x, y = IndexSet(a), IndexSet(b)
    assert set(x | y) == a | b
    assert set(x & y) == a & b
    assert set(x - y) == a - b
    assert (x <= y) == (a <= b)
    assert x.isdisjoint(y) == a.isdisjoint(b)
    assert (x == y) == (a == b)
    assert all((i in x) == (i in a) for i in a | b | {0, 5, 3000})
    assert list(x) == sorted(a) and len(x) == len(a) and bool(x) == bool(a)


@given(members)
def test_however_it_is_made_it_is_equal_and_hashes_equal(a: frozenset[int]) -> None:
    made = [IndexSet(a), IndexSet(sorted(a)), IndexSet(iter(a)), IndexSet.from_bits(sum(1 << i for i in a))]
    made.append((IndexSet(a | {2500}) - IndexSet([2500])) | IndexSet())
    made.append(IndexSet(a | {0, 2500}) & IndexSet(a))
    assert len(set(made)) == 1
    assert made[0].bits == sum(1 << i for i in a)


@given(members.filter(bool))
def test_first_and_last(a: frozenset[int]) -> None:
    assert (IndexSet(a).first, IndexSet(a).last) == (min(a), max(a))


def test_it_prints_runs() -> None:
    assert repr(IndexSet([1, 3, 4, 5, 8, 9])) == "{1,3..5,8,9}"
    assert repr(IndexSet()) == "{}"


def test_shifted_sets_do_not_collide() -> None:
    """Python hashes integers modulo 2**61 - 1; hashing the bits would give 1,000 singletons 61 hashes."""
    assert len({hash(IndexSet([i])) for i in range(1000)}) > 990
