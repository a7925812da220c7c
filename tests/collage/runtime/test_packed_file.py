"""A packed file gives back what was put in, stores what is equal once, and knows when its end is missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from collage.errors import CompiledModelError
from collage.runtime.packed_file import PackedFile, is_packed, pack

WEIGHTS = np.random.default_rng(0).standard_normal(100_000, "float32").tobytes()


@pytest.mark.parametrize("content", [b"", b"short", bytes(300_000), b"ab" * 100_000, WEIGHTS, WEIGHTS[:7]])
def test_what_is_put_in_comes_out(content: bytes, tmp_path: Path) -> None:
    pack(tmp_path / "p", [("a", content), ("b", b"x" + content)], {"answer": [1, None]})
    packed = PackedFile.open(tmp_path / "p")
    assert packed.read("a") == content and packed.read("b") == b"x" + content
    packed.extract("b", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"x" + content
    assert packed.about == {"answer": [1, None]} and packed.unpacked_bytes() == 2 * len(content) + 1
    assert is_packed(tmp_path / "p") and not is_packed(tmp_path / "b")


def test_equal_weights_at_different_places_are_stored_once(tmp_path: Path) -> None:
    pack(tmp_path / "p", [("a", b"header" + WEIGHTS + b"end"), ("b", bytes(1001) + WEIGHTS)], {})
    assert (tmp_path / "p").stat().st_size < 1.2 * len(WEIGHTS)


def test_an_opened_file_stays_when_another_takes_its_path(tmp_path: Path) -> None:
    pack(tmp_path / "p", [("a", WEIGHTS)], {})
    opened = PackedFile.open(tmp_path / "p")
    pack(tmp_path / "q", [("a", b"other")], {})
    (tmp_path / "q").replace(tmp_path / "p")
    assert opened.read("a") == WEIGHTS


@pytest.mark.parametrize("share", [0.00001, 0.5, 0.99999])
def test_a_file_whose_end_is_missing(share: float, tmp_path: Path) -> None:
    pack(tmp_path / "p", [("a", WEIGHTS)], {})
    whole = (tmp_path / "p").read_bytes()
    (tmp_path / "p").write_bytes(whole[: max(8, int(share * len(whole)))])
    with pytest.raises(CompiledModelError, match="its end is missing"):
        PackedFile.open(tmp_path / "p")


def test_an_index_that_cannot_be_read(tmp_path: Path) -> None:
    pack(tmp_path / "p", [("a", b"content")], {})
    (tmp_path / "p").write_bytes((tmp_path / "p").read_bytes().replace(b'"files"', b'"fails"'))
    with pytest.raises(CompiledModelError, match="its index cannot be read"):
        PackedFile.open(tmp_path / "p")
