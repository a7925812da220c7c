"""The noise ceiling is what scatter leaves to a perfect model; regret is of what ships."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from benchmarks.estimators import shipped
from benchmarks.estimators.ceiling import Measured, ceiling
from benchmarks.estimators.evaluation import ranking, ranking_table
from benchmarks.referee.race import Repetition


def candidates(scatter: float, sessions: int = 4, count: int = 100) -> list[Measured]:
    """Of two backends, the second one 5 to 20% slower."""
    rng = np.random.default_rng(0)
    found = []
    for i in range(count):
        latency = np.exp(rng.normal(-8.0, 1.0))
        for backend, factor in (("a", 1.0), ("b", rng.uniform(1.06, 1.2))):
            noise = np.exp(rng.normal(0.0, scatter, sessions))
            found.append(Measured(str(i), backend, tuple(latency * factor * noise)))
    return found


def test_without_scatter_a_perfect_model_is_right() -> None:
    found = ceiling(candidates(0.0))
    assert found.pairs.accuracy == 1.0 and found.pairs.count == 100
    assert all(s.mape < 1e-9 for s in found.scores.values())


def test_the_ceiling_is_the_error_of_the_mean() -> None:
    """Of normal scatter s in n sessions: s times the root of 2 / (pi n), in the mean."""
    for sessions in (4, 8):
        found = ceiling(candidates(0.05, sessions))
        expected = 0.05 * np.sqrt(2 / np.pi / sessions)
        for scores in found.scores.values():
            assert scores.mape == pytest.approx(expected, rel=0.3)
    assert ceiling(candidates(0.02)).pairs.accuracy > ceiling(candidates(0.2)).pairs.accuracy


def row(model: str, predicted: Sequence[float | None], backend: str = "tvm") -> dict[str, Any]:
    return {"network": "n", "model": model, "backend": backend, "predicted": predicted, "recorded": [1.0, 2.0, 3.0]}


def test_ranks_are_of_all_backends_together() -> None:
    rows = [{"settings": {}}, row("learned", [1.0, 2.0, 3.0]), row("learned", [30.0, 20.0, 10.0], "onednn")]
    found = ranking([*rows, row("roofline", [3.0, None, 4.0])])
    assert found["n"]["roofline"] == pytest.approx(1.0)
    assert -1.0 < found["n"]["learned"] < 1.0
    assert [column.header for column in ranking_table(rows).columns] == ["network", "learned"]


def raced(learned: float, error: float = 0.0) -> Repetition:
    medians = {"learned": [learned] * 4, "measured": [1.0] * 4}
    return Repetition(0, "", medians, errors={"learned": error, "measured": 0.0})


def test_regret_is_the_ratio_of_what_ships() -> None:
    assert shipped.regret([raced(1.1), raced(1.1)])["median"] == pytest.approx(1.1)
    with pytest.raises(ValueError, match="numbers"):
        shipped.regret([raced(1.1, error=0.1)])
    broken = raced(1.1)
    broken.unavailable["learned"] = "status -11"
    with pytest.raises(ValueError, match="learned ships does not run: status -11"):
        shipped.regret([broken])


def test_structures_in_training_are_counted_once() -> None:
    assert shipped.shared(["a", "b", "b"], {"b", "c"}) == {"shared": 1, "of": 2}


def test_the_table_of_regrets_tells_the_worst() -> None:
    def result(network: str, median: float) -> dict[str, Any]:
        tuned = {"ships": {"tvm": 1}, "choice": "x", "seconds": 12.3}
        interval = {"median": median, "low": 0.9, "high": 1.2}
        known = {"shared": 3, "of": 40}
        tunes = {"learned": tuned, "measured": tuned}
        return {"network": network, "structures": known, "tunes": tunes, "regret": interval}

    text = shipped.markdown([result("a", 1.0), result("b", 1.1)])
    assert "| b | 3 of 40 | tvm, 12 | tvm, 12 | 1.100 (0.900 to 1.200) |" in text
    assert "Regret: median 1.050, worst 1.100 (b)." in text
