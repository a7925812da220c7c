"""Watching: the calls of a loaded model are timed one by one, and nothing is loaded for that a second time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import collage.runtime
from collage.measure.watching import watch
from collage.runtime import engines
from tests.collage.runtime.conftest import SHAPE, compiled, expected


def inputs(folder: Path) -> list[str]:
    paths = [folder / f"{name}.npy" for name in "ab"]
    for path in paths:
        np.save(path, np.random.default_rng(0).standard_normal(SHAPE, dtype=np.float32))
    return list(map(str, paths))


def test_the_calls_of_a_model_are_those_of_its_partitions_and_no_engine_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled("mixed").export(tmp_path / "model.so")
    model = collage.runtime.load(tmp_path / "model.so")
    assert isinstance(model, collage.runtime.CompiledModel)
    a, b = given = [np.load(path) for path in inputs(tmp_path)]
    model(*given)
    made: Sequence[str] = []
    monkeypatch.setattr(engines, "create", lambda engine, blob, options: made.append(engine))  # type: ignore[attr-defined]
    engines.register()
    parts, launches, calls = watch(model, inputs(tmp_path), 3)
    monkeypatch.undo()
    engines.register()
    assert made == [] and launches == ()
    assert len(parts) == len(calls) == 3 and all(seconds > 0 for _, seconds in parts)
    assert sum("openvino" in symbol for symbol, _ in parts) == 2
    for result, right in zip(model(*given), expected(a, b), strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-5)
