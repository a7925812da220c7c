"""Conformance suites: tests that every searcher, estimator and backend has to pass, bundled or of a third party.

    from collage.testing import SearcherConformance

    class TestMine(SearcherConformance):
        def make(self):
            return MySearcher()

pytest collects the inherited tests. After `optuna/testing/pytest_samplers.py`. The suites need pytest (`pip install
collage-tvm[test]`); nothing else of Collage does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collage.testing.backends import BackendConformance as BackendConformance
    from collage.testing.estimators import CostEstimatorConformance as CostEstimatorConformance
    from collage.testing.searchers import SearcherConformance as SearcherConformance

#: Imported on first use: the fresh processes of the tests need little of this package.
_SUITES = {
    "BackendConformance": "collage.testing.backends",
    "CostEstimatorConformance": "collage.testing.estimators",
    "SearcherConformance": "collage.testing.searchers",
}
__all__ = [*_SUITES]

# Assertions then say what they compared, as those of a test file do.
pytest.register_assert_rewrite("collage.testing.parameters", *_SUITES.values())


def __getattr__(name: str) -> Any:
    if name in _SUITES:
        return getattr(import_module(_SUITES[name]), name)
    raise AttributeError(f"module 'collage.testing' has no attribute {name!r}")
