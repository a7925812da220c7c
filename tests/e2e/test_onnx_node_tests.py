"""The ONNX project's node tests through Collage: no backend gives a wrong result without saying so.

`python -m benchmarks.onnx_node_tests --backend NAME` prints the counts and the reasons of refusals.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.onnx_node_tests import compare, node_tests, part_of, run_all
from benchmarks.onnx_outcomes import Outcome, goal_report

pytestmark = pytest.mark.long

ENGINES = ("openvino", "onnxruntime")


@pytest.fixture(scope="module")
def names() -> list[str]:
    return [case.name for case in node_tests()]


def assert_nothing_wrong(outcomes: list[Outcome], expected: list[str], least_passed: float) -> None:
    """Every test has an outcome, none is wrong or killed its process, and refusing everything is no way out."""
    assert [outcome.name for outcome in outcomes] == expected
    bad = [f"{o.outcome} {o.name}: {o.reason}" for o in outcomes if o.outcome in ("wrong", "crash")]
    assert not bad, "\n".join(bad)
    passed = sum(outcome.outcome == "pass" for outcome in outcomes)
    assert passed >= least_passed * len(outcomes), f"only {passed} of {len(outcomes)} passed"


@pytest.mark.parametrize("backend", ENGINES)
def test_engines_on_every_node_test(backend: str, names: list[str]) -> None:
    assert_nothing_wrong(run_all(backend, names), names, least_passed=0.35)


def test_tvm_on_a_sample(names: list[str]) -> None:
    sample = names[::8]
    assert_nothing_wrong(run_all("tvm", sample), sample, least_passed=0.5)


@pytest.mark.timeout(1500)
def test_a_third_as_collage_places_it(names: list[str]) -> None:
    """All CPU backends together; `--backend collage` runs all of them."""
    lines, reached = goal_report(run_all("collage", part_of(names, 0, 3)))
    assert reached, "\n".join(lines)


def test_a_test_at_which_the_worker_ends_is_told_and_the_next_one_runs(tmp_path: Path) -> None:
    """Outcomes are kept in a file, and tests that are in it are not run again."""
    kept = tmp_path / "outcomes.jsonl"
    outcomes = run_all("onnxruntime", ["test_abs", "no_such_test", "test_neg"], kept=kept)
    assert [outcome.outcome for outcome in outcomes] == ["pass", "crash", "pass"]
    assert "KeyError: 'no_such_test'" in outcomes[1].reason
    assert len(kept.read_text().splitlines()) == 3
    assert run_all("no such backend", ["test_neg", "no_such_test"], kept=kept) == [outcomes[2], outcomes[1]]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_tvm_on_every_node_test(names: list[str]) -> None:
    assert_nothing_wrong(run_all("tvm", names), names, least_passed=0.5)


def test_every_test_is_in_one_part_and_stays_there(names: list[str]) -> None:
    parts = [part_of(names, index, 3) for index in range(3)]
    assert sorted(name for part in parts for name in part) == sorted(names)
    assert min(map(len, parts)) > len(names) / 4
    assert part_of(parts[1][:5], 1, 3) == parts[1][:5]


def test_a_wrong_result_is_told_from_a_right_one() -> None:
    """The comparison itself can fail: in value, shape, dtype and number."""
    want = np.array([1.0, 2.0, 300.0], dtype=np.float32)
    assert compare([want * (1 + 5e-4)], [want], rtol=1e-3, atol=1e-7) == ""
    assert compare([want * (1 + 5e-3)], [want], rtol=1e-3, atol=1e-7)
    assert compare([want + np.float32(1e-2)], [want], rtol=1e-3, atol=1e-7)
    assert compare([want.reshape(3, 1)], [want], rtol=1e-3, atol=1e-7)
    assert compare([want.astype(np.float64)], [want], rtol=1e-3, atol=1e-7)
    assert compare([want, want], [want], rtol=1e-3, atol=1e-7)
    assert compare([np.array([1, 2])], [np.array([1, 3])], rtol=1.0, atol=1.0)
