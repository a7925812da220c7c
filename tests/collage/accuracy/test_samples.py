"""Samples are read from files and sequences; what is wrong with them is one clear line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collage.accuracy.samples import read_samples, split
from collage.errors import ModelInputError
from collage.runtime.tensor_spec import TensorSpec

IMAGE = TensorSpec("image", (2, 3), "float32")
IDS = TensorSpec("ids", (2,), "int64")
SPECS = (IMAGE, IDS)


def _images(count: int) -> np.ndarray:
    return np.arange(count * 6, dtype=np.float32).reshape(count, 2, 3)


def _ids(count: int) -> np.ndarray:
    return np.arange(count * 2).reshape(count, 2)


@pytest.mark.parametrize("flat", [False, True])
def test_a_file_has_samples_on_a_leading_axis_or_in_the_batch(tmp_path: Path, flat: bool) -> None:
    images, ids = _images(3), _ids(3)
    np.savez(tmp_path / "s.npz", image=images.reshape(6, 3) if flat else images, ids=ids.reshape(6) if flat else ids)
    samples = read_samples(tmp_path / "s.npz", SPECS)
    assert len(samples) == 3
    for i, (image, numbers) in enumerate(samples):
        np.testing.assert_array_equal(image, images[i])
        np.testing.assert_array_equal(numbers, ids[i])


def test_sequences_of_samples() -> None:
    expected = [(_images(2)[i], _ids(2)[i]) for i in range(2)]
    mappings = [{"ids": ids, "image": image} for image, ids in expected]
    lists = [[image, ids] for image, ids in expected]
    stacked = {"image": _images(2), "ids": _ids(2)}
    for source in (expected, mappings, lists, (each for each in lists), stacked):
        for sample, wanted in zip(read_samples(source, SPECS), expected, strict=True):
            assert all(map(np.array_equal, sample, wanted))


def test_of_one_input_arrays_are_samples() -> None:
    samples = read_samples(list(_images(2)), [IMAGE])
    assert [len(sample) for sample in samples] == [1, 1]
    assert len(read_samples(_images(4), [IMAGE])) == 4


def test_scalars_have_an_axis_of_samples() -> None:
    scalar = TensorSpec("x", (), "float32")
    assert read_samples({"x": np.ones(3, np.float32)}, [scalar]) == [(1.0,)] * 3


def test_they_are_split_in_turns() -> None:
    samples = [(np.float32(i),) for i in range(5)]
    searched_with, held_out = split(samples)
    assert [int(s[0]) for s in searched_with] == [0, 2, 4]
    assert [int(s[0]) for s in held_out] == [1, 3]


NAN = np.full((2, 3), np.nan, np.float32)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "there are no samples"),
        ({"image": _images(0), "ids": _ids(0)}, "there are no samples"),
        (7, "not a int"),
        ([7], "sample 0 is a int"),
        (["image"], "sample 0 is a str"),
        ([[_images(1)[0]]], "sample 0 has 1 arrays; the network takes 2 inputs"),
        ([[NAN, _ids(1)[0]]], "sample 0: 'image' has numbers that are not finite"),
        ([[NAN + np.inf, _ids(1)[0]]], "not finite"),
        ([[_images(1)[0].astype(float), _ids(1)[0]]], r"is float64\[2, 3\]; the network takes image: float32\[2, 3\]"),
        ([[_images(1), _ids(1)[0]]], r"is float32\[1, 2, 3\]"),
        ([[[[1.0], [2.0, 3.0]], _ids(1)[0]]], "a sample of 'image' is no array"),
        ([[np.array([None]), _ids(1)[0]]], "a sample of 'image' is no array of numbers"),
        ([{"image": _images(1)[0]}], "no 'ids'"),
        ([{"image": _images(1)[0], "ids": _ids(1)[0], "mask": 0}], "'mask', which is no input"),
        ({"image": _images(3), "ids": _ids(2)}, "3 of 'image', 2 of 'ids'"),
        ({"image": _images(3)[:, :1], "ids": _ids(3)}, r"samples of 'image' have shape \[3, 1, 3\]"),
        ({"image": _images(3).reshape(6, 3)[:5], "ids": _ids(3)}, r"samples of 'image' have shape \[5, 3\]"),
    ],
)
def test_wrong_samples_are_one_line(source: Any, message: str) -> None:
    with pytest.raises(ModelInputError, match=message) as caught:
        read_samples(source, SPECS)
    assert "\n" not in str(caught.value)


def test_wrong_files_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("no numbers\n")
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "torn.npz").write_bytes(b"PK\x03\x04 torn")
    np.save(tmp_path / "one.npy", _images(1))
    np.savez(tmp_path / "objects.npz", image=np.array([{}], dtype=object), ids=_ids(1))
    for name, message in {
        "nowhere.npz": "No such file",
        ".": "cannot be read",
        "text.npz": "no .npz file",
        "empty.npz": "no .npz file",
        "torn.npz": "no .npz file",
        "one.npy": "holds one array",
        "objects.npz": "no .npz file of numbers",
    }.items():
        with pytest.raises(ModelInputError, match=message) as caught:
            read_samples(tmp_path / name, SPECS)
        assert "\n" not in str(caught.value)


def test_one_sample_cannot_be_split() -> None:
    with pytest.raises(ModelInputError, match="two samples at least are needed"):
        split([(np.float32(1),)])
